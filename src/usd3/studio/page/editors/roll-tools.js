/** The tools above the piano roll, and the bar of a selection. */

import { button, h } from "../dom.js";
import { placeOf } from "../music.js";

const TOOLS = [
  ["draw", "pencil", "Draw: click to add a note, drag to lengthen; click a note to erase or keep it"],
  ["erase", "eraser", "Erase: touch notes to open them"],
  ["lock", "lock", "Lock: touch notes to keep them, or to let them be drawn anew"],
  ["select", "select", "Select a range to fill"],
];
const NAMES = { draw: "Draw", erase: "Erase", lock: "Lock", select: "Select" };
const LENGTHS = [["1/16", 0.25], ["1/8", 0.5], ["1/4", 1], ["1/2", 2], ["1/1", 4]];

/** The lengths of notes in steps. */
export const lengthChoice = ({ steps_per_beat: beat }) =>
  LENGTHS.map(([name, beats]) => ({ name, steps: beats * beat })).filter(({ steps }) => Number.isInteger(steps) && steps > 0);

/** Buttons of the tools, the voices, the length of a note and the zoom. */
export function toolbar({ names, roll, length: choices, onTool, onLength }) {
  const tools = TOOLS.map(([name, symbol, title]) =>
    button(NAMES[name], () => choose(name), { icon: symbol, title, pressed: name === "draw", class: "tool" }));
  function choose(name) {
    TOOLS.forEach(([other], i) => tools[i].setAttribute("aria-pressed", String(other === name)));
    onTool(name);
  }
  const voices = names.map(({ name }, voice) =>
    button(name, () => roll.chooseVoice(voice), { pressed: voice === 0, class: "voice", data: { voice }, title: `Draw the ${name.toLowerCase()} (key ${voice + 1})` }));
  const length = h("select", { "aria-label": "Length of new notes", title: "Length of new notes", on: { change: () => onLength(Number(length.value)) } },
    ...choices.map(({ name, steps }) => h("option", { value: steps, text: `${name} note`, selected: steps === roll.length })));
  const zoom = h("div", { class: "group zoom" },
    button("", () => roll.zoom(1 / 1.4), { icon: "minus", title: "Zoom out" }),
    button("", () => roll.zoom(1.4), { icon: "plus", title: "Zoom in" }));
  return {
    element: h("div", { class: "tools", role: "toolbar", "aria-label": "Tools of the piano roll" },
      h("div", { class: "group" }, ...tools),
      names.length > 1 && h("div", { class: "group voices", role: "group", "aria-label": "Voice" }, ...voices), length, zoom),
    showVoice: (active) => voices.forEach((element, voice) => element.setAttribute("aria-pressed", String(voice === active))),
    changeLength(by) {
      const index = Math.min(Math.max(length.selectedIndex + by, 0), choices.length - 1);
      length.selectedIndex = index;
      onLength(choices[index].steps);
    },
  };
}

/** What can be done with a selection. */
export function selectionBar({ names, signature, act, clear, onVoice }) {
  const text = h("span", { class: "range" });
  const voice = h("select", { "aria-label": "Voices of the selection", on: { change: () => onVoice(voice.value === "" ? null : Number(voice.value)) } },
    h("option", { value: "", text: "all voices" }), ...names.map(({ name }, i) => h("option", { value: i, text: `only ${name.toLowerCase()}` })));
  const element = h("div", { class: "selection-bar", role: "group", "aria-label": "Selection", hidden: true }, text,
    names.length > 1 && voice,
    button("Lock", () => act("lock"), { icon: "lock" }), button("Unlock", () => act("unlock"), { icon: "unlock" }),
    button("Erase", () => act("open"), { icon: "eraser" }), button("Rest", () => act("rest")),
    button("", clear, { icon: "close", title: "End the selection" }));
  return {
    element,
    show(selection) {
      element.hidden = selection === null;
      if (selection) text.textContent = `${sentence(placeOf(selection.from, signature))} to ${lastOf(selection.to, signature)}`;
    },
  };
}

/** The place at which a selection ends: its last beat, or within one its last step. */
const lastOf = (to, signature) => placeOf(to % signature.steps_per_beat ? to - 1 : to - signature.steps_per_beat, signature);

const sentence = (text) => text[0].toUpperCase() + text.slice(1);
