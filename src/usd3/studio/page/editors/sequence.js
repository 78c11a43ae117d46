/** The editor of sequences of letters, such as DNA: coloured letters in groups of ten. */

import { h } from "../dom.js";
import { written } from "./written.js";

export const labels = { fill: "Fill the holes" };
export const keys = [["N or -", "a hole of one letter; what a sequence lacks at its end is drawn, too"]];

const GROUP = 10;
const HUES = 8;

/** @param {Object} context see studio.js */
export function create(context) {
  const { alphabet, hole, length } = context.model.editor;
  const sign = hole ?? "_";
  const isHole = (letter) => !alphabet.includes(letter) && !alphabet.includes(letter.toUpperCase());
  const fixed = !context.model.editor.shorter && hole;
  const editor = written(context, {
    hole: sign, isHole, title: `Your sequence, of ${length} letters ${alphabet.length <= 30 ? alphabet : ""}`, style: "letters", most: length,
    placeholder: `${sign} is a hole. What is not typed is drawn.`,
    clean: (text) => text.replace(/\s+/g, ""),
    render: (parts) => groups(parts, alphabet),
  });
  /** What is not typed at the end is open. */
  const padded = (text) => (fixed && text !== "" ? text.padEnd(length, hole) : text);
  return { ...editor, plan: (action, doc) => { const { send, keep } = editor.plan(action, doc); return { send: padded(send), keep }; } };
}

/** Letters in groups, each with the place of its first letter. */
function groups(parts, alphabet) {
  const letters = parts.flatMap(({ text, filled, sure }) => [...text].map((letter) => ({ letter, filled, sure })));
  const blocks = [];
  for (let from = 0; from < letters.length; from += GROUP) {
    blocks.push(h("span", { class: "block", data: { place: from + 1 } }, ...letters.slice(from, from + GROUP).map((part) => coloured(part, alphabet))));
  }
  return blocks;
}

function coloured({ letter, filled, sure }, alphabet) {
  const hue = alphabet.indexOf(letter.toUpperCase()) % HUES;
  const element = h("b", { class: `letter hue-${hue < 0 ? "none" : hue}${filled ? " filled" : ""}`, text: letter });
  element.style.setProperty("--sure", Math.max(sure, 0.12).toFixed(2));
  return element;
}
