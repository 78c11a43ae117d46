/** What the editors of texts and of sequences share: a field with gaps, and a sheet on which the network writes. */

import { button, h } from "../dom.js";

const PAUSE = 700; // milliseconds after which typing is a new step of the history

/**
 * @typedef {Object} Part a piece of a drawn string
 * @property {string} text
 * @property {boolean} filled whether the network wrote it
 * @property {number} sure in [0, 1]; below 1 it is still open
 */

/**
 * The pieces of a result: what was typed, and what the network wrote.
 * @returns {Part[]}
 */
export function partsOf(prompt, result, isHole) {
  const pieces = split(prompt, isHole);
  const parts = [];
  let at = 0;
  pieces.forEach(({ text, hole }, i) => {
    if (hole) {
      const after = pieces[i + 1]?.text;
      const exact = at + text.length;
      const end = after === undefined || result.startsWith(after, exact) ? exact : result.indexOf(after, at);
      const until = end < at ? result.length : Math.min(end, result.length);
      parts.push({ text: result.slice(at, until), filled: true, sure: 1 });
      at = until;
    } else {
      const same = result.startsWith(text, at);
      parts.push({ text: result.slice(at, at + text.length), filled: !same, sure: 1 });
      at += text.length;
    }
  });
  if (at < result.length) parts.push({ text: result.slice(at), filled: true, sure: 1 });
  return parts.filter((part) => part.text !== "");
}

/** The pieces of a frame, character by character where something is open. */
export function partsOfFrame({ object, sure, open }, prompt, isHole) {
  const known = [...prompt].map((character) => !isHole(character));
  const parts = [];
  [...object].forEach((text, i) => {
    const part = { text, filled: !known[i], sure: open[i] ? Math.min(Math.round(sure[i] * 10), 9) / 10 : 1 };
    const last = parts.at(-1);
    if (last && last.filled === part.filled && last.sure === part.sure) last.text += text;
    else parts.push(part);
  });
  return parts;
}

function split(prompt, isHole) {
  const pieces = [];
  for (const character of prompt) {
    const hole = isHole(character);
    if (pieces.at(-1)?.hole === hole) pieces.at(-1).text += character;
    else pieces.push({ text: character, hole });
  }
  return pieces;
}

/**
 * An editor of strings.
 * @param {Object} context see studio.js
 * @param {{hole: string, isHole: (character: string) => boolean, title: string, placeholder: string, style: string,
 *   clean?: (text: string) => string, most?: number, render: (parts: Part[]) => Node[]}} form
 */
export function written(context, { hole, isHole, title, placeholder, style, clean, most, render }) {
  let typed = 0;
  const field = h("textarea", { class: `prompt ${style}`, id: "prompt", rows: 4, placeholder, spellcheck: "false", autocapitalize: "off" });
  const mirror = h("div", { class: `mirror ${style}`, "aria-hidden": "true" });
  const sheet = h("div", { class: `sheet ${style}`, tabindex: 0, role: "region", "aria-label": "What the network wrote" });
  const count = h("output", { class: "count", for: "prompt", "aria-live": "off" });
  const gap = button("Make a gap", () => makeGap(), { icon: "eraser", title: `Replace the marked letters by gaps (${hole}), or put one in` });
  const take = button("Continue with this", () => context.commit({ object: context.doc().result, result: null, drawn: null }), { icon: "lock", title: "Put the result into the field, to edit it further" });
  const bar = h("div", { class: "row between sheet-bar" }, h("h2", { text: "Result" }), take);

  field.addEventListener("input", () => {
    const value = clean ? clean(field.value) : field.value;
    if (value !== field.value) {
      const place = field.selectionStart;
      field.value = value;
      field.setSelectionRange(place, place);
    }
    const now = performance.now();
    (now - typed > PAUSE ? context.commit : context.amend)({ object: value });
    typed = now;
  });
  field.addEventListener("scroll", () => { mirror.scrollTop = field.scrollTop; });

  /** Turn the marked part of the field, or of the sheet, into a gap. */
  function makeGap() {
    const [from, to] = [field.selectionStart, field.selectionEnd];
    const text = field.value;
    const length = to > from ? to - from : 4;
    const changed = text.slice(0, from) + hole.repeat(length) + text.slice(to);
    typed = 0;
    context.commit({ object: changed });
    field.focus();
    field.setSelectionRange(from + length, from + length);
  }

  const marked = (parts) => parts.map(({ text, filled, sure }) => {
    if (!filled) return h("span", { text });
    const mark = h("mark", { class: sure < 1 ? "guess" : "", text });
    mark.style.setProperty("--sure", Math.max(sure, 0.08).toFixed(2));
    return mark;
  });

  return {
    marked, element: h("div", { class: "written" },
      h("label", { for: "prompt", class: "caption", text: title }),
      h("div", { class: "prompt-frame" }, mirror, field), h("div", { class: "row between" }, gap, count),
      bar, sheet),
    tools: null, wideVariants: true,
    plan: (action, { object }) => {
      const empty = context.model.example;
      return action === "generate" ? { send: empty, keep: empty } : { send: object, keep: object };
    },
    show({ object, result, frame, drawn }) {
      if (field.value !== object) field.value = object;
      mirror.replaceChildren(...split(object, isHole).map(({ text, hole: isGap }) => h(isGap ? "mark" : "span", { text })), "\n");
      count.textContent = most ? `${object.length} of ${most}` : "";
      count.classList.toggle("over", object.length > most);
      field.style.height = "auto";
      field.style.height = `${Math.min(field.scrollHeight + 2, 320)}px`;
      const prompt = drawn?.request.object ?? object;
      const parts = frame ? partsOfFrame(frame, object, isHole) : result !== null ? partsOf(prompt, result, isHole) : null;
      bar.hidden = sheet.hidden = parts === null;
      take.hidden = frame !== null;
      if (parts) sheet.replaceChildren(...render(parts, marked));
    },
    thumbnail(object, { against, request }) {
      const parts = against ? different(object, against) : partsOf(request, object, isHole);
      return h("div", { class: `thumbnail words ${style}` }, ...render(parts, marked));
    },
  };
}

/** The pieces of a string that differ from another one, place by place. */
function different(text, other) {
  const parts = [];
  [...text].forEach((character, i) => {
    const filled = character !== other[i];
    if (parts.at(-1)?.filled === filled) parts.at(-1).text += character;
    else parts.push({ text: character, filled, sure: 1 });
  });
  return parts;
}
