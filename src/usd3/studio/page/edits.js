/**
 * Edits of numeric objects, as pure functions: each returns the changed parts `{object, result}` of a document.
 *
 * `object` is what is given; `result` what a network drew. `hit(index)` says which elements change, row by row.
 */

import { OPEN, hasOpen, isOpen, mapped, merged } from "./objects.js";

/** Give a value. */
export const put = ({ object, result }, value, hit) => ({
  object: mapped(object, (old, i) => (hit(i) ? value : old)), result,
});

/** Open elements again, and forget what was drawn there. */
export const openUp = ({ object, result }, hit) => ({
  object: mapped(object, (old, i) => (hit(i) ? OPEN : old)),
  result: result && mapped(result, (old, i) => (hit(i) ? OPEN : old)),
});

/** Keep what was drawn. */
export const lock = ({ object, result }, hit) => ({
  object: result ? mapped(object, (old, drawn, i) => (hit(i) && old === OPEN ? drawn : old), result) : object,
  result,
});

/** Let the network draw elements anew; until then they stay visible. */
export const unlock = ({ object, result }, hit) => ({
  object: mapped(object, (old, i) => (hit(i) ? OPEN : old)),
  result: result
    ? mapped(result, (drawn, old, i) => (hit(i) && old !== OPEN ? old : drawn), object)
    : mapped(object, (old, i) => (hit(i) ? old : OPEN)),
});

/** What to send so that the elements of a selection are drawn anew and all others stay. */
export const around = ({ object, result }, hit) =>
  mapped(merged(object, result), (value, i) => (hit(i) ? OPEN : value));

/**
 * What to send, and what stays given on the page.
 *
 * A selection is drawn anew. Without one, a fill draws what was erased from a result; where nothing was, all that is not
 * given.
 */
export function plan(action, doc, model, selected) {
  if (action === "generate") return { send: model.example, keep: model.example };
  if (selected) return { send: around(doc, selected), keep: mapped(doc.object, (value, i) => (selected(i) ? OPEN : value)) };
  return { send: hasGaps(doc) ? merged(doc.object, doc.result) : doc.object, keep: doc.object };
}

/** Whether something of a result was erased. */
export const hasGaps = ({ object, result }) => result !== null && hasOpen(merged(object, result)) && !isOpen(merged(object, result));

/** What the button of a fill says. */
export const fillLabel = (doc, word = "Fill the rest") => (hasGaps(doc) ? "Fill the gaps" : doc.result === null ? word : "Draw again");
