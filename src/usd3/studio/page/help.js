/** The dialog with the keys. */

import { button, h } from "./dom.js";

const EVERYWHERE = [
  ["Ctrl + Enter", "fill, or generate where nothing is given"], ["Ctrl + Shift + Enter", "generate from nothing"],
  ["Ctrl + Z", "undo"], ["Ctrl + Shift + Z", "redo"], ["Esc", "stop drawing or playing"], ["?", "this help"],
];

const list = (keys) => h("dl", { class: "keys" }, ...keys.flatMap(([name, text]) => [h("dt", {}, h("kbd", { text: name })), h("dd", { text })]));

/** Open the help with the keys of the editor that is open. */
export function showHelp(dialog, title, keys) {
  dialog.replaceChildren(
    h("div", { class: "row between" }, h("h2", { id: "help-title", text: "Help" }), button("", () => dialog.close(), { icon: "close", title: "Close" })),
    h("p", { text: "Give what you want to keep. What is open, the network draws: pale while it is unsure, dark once it is certain. Click a variant to adopt it, lock parts of it, and draw the rest again." }),
    ...(keys?.length ? [h("h3", { text: title }), list(keys)] : []), h("h3", { text: "Everywhere" }), list(EVERYWHERE));
  dialog.showModal();
}
