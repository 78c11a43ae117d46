/** The editor of texts: type with gaps of `_`, or only a beginning. */

import { written } from "./written.js";

export const labels = { fill: "Fill the gaps" };
export const keys = [["_", "a gap of one character"], ["Ctrl + Enter", "fill the gaps, or continue a text that has none"]];

/** @param {Object} context see studio.js */
export function create(context) {
  const { hole = "_", unit, length } = context.model.editor;
  const editor = written(context, {
    hole, isHole: (character) => character === hole, title: "Your text", style: "prose", most: unit === "characters" ? length : undefined,
    placeholder: `It was the ${hole.repeat(4)} of times. Each ${hole} is a gap of one character; without gaps, the text is continued.`,
    render: (parts, marked) => marked(parts),
  });
  return { ...editor, fillLabel: ({ object }) => (object.includes(hole) ? labels.fill : "Continue") };
}
