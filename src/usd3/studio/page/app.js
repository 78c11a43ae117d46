/**
 * The page of `usd3 studio`. Plain modules, no build step, nothing from elsewhere.
 *
 *   app.js          starts the page
 *   studio.js       the model that is open, and what its buttons do; drawing.js one draw; home.js the choice of a model;
 *                   files.js examples and files; report.js progress and errors; listening.js keys and dropped files
 *   store.js        the document and its history; sharing.js, link.js the link that reproduces it;
 *                   objects.js, edits.js pure functions
 *   api.js          requests to the server, and the events of a draw
 *   settings.js  timeline.js  variants.js  transport.js  theme.js  help.js      parts of the page, each with its element
 *   synth.js  instruments.js  music.js      sound, and notes of an object
 *   editors/        one module for each kind of editor; the model names its own
 *
 * An editor is a module with `create(context)`, `labels` of the buttons and `keys` for the help. `create` returns
 * `{element, tools, results, show({object, result, frame, drawn, chosen}), plan(action, doc), thumbnail(object, options)}`
 * and, where it has them, `reveal()`, `selected()`, `fillLabel(doc)`, `theme()`, `complete(object)`; of music also
 * `notes(object)`, `from()`, `to()`, `playhead(step)`, `canHarmonise`; `ownsVariants` says that it shows all variants
 * itself, `plainVariants` that its thumbnails cannot be compared. studio.js makes `context`. What is given is `object`,
 * with holes; what a network drew is `result`; both are never changed in place.
 */

import { Studio } from "./studio.js";

const studio = new Studio();
window.usd3Studio = studio.hook; // for tests: the state and the synthesiser
studio.start();
