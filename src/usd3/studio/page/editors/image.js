/** The editor of images: a picture whose tokens can be erased and drawn anew. The server makes the pictures. */

import * as api from "../api.js";
import { button, h } from "../dom.js";
import { fillLabel, lock, openUp, plan, unlock } from "../edits.js";
import { OPEN, flat, hasOpen, mapped, merged } from "../objects.js";
import { hue, layout, mosaic } from "./array.js";
import { cellGrid } from "./cells.js";

export const labels = { fill: "Fill the rest" };
export const keys = [["Arrow keys", "move"], ["Enter or Space", "use the tool"], ["Delete", "erase the token"], ["L", "lock or unlock the token"]];

const KEPT = 60; // pictures in memory
const BRUSHES = [1, 2, 4];
const SIDE = 420; // of a picture of few tokens, in pixels

/** @param {Object} context see studio.js */
export function create(context) {
  const { model } = context;
  const [height, width] = model.editor.grid ?? [layout(model.shape).rows, layout(model.shape).columns];
  const pictures = new Pictures(model.model, context.fail);
  let state = { given: [], shown: [], sure: null, picture: null };
  let tool = "erase";
  let brush = 2;
  let wanted = null;
  let asking = false;
  const { missing } = model.editor; // why there are no pictures
  const doc = () => ({ object: context.doc().object, result: context.doc().result });

  const grid = cellGrid({
    rows: height, columns: width, label: `Picture of ${height} by ${width} tokens. Arrow keys move, Enter erases.`, announce: context.announce,
    brushSize: () => brush, largest: Math.max(44, SIDE / Math.max(height, width)),
    before(canvas, w, h_) {
      if (state.picture && !missing) canvas.drawImage(state.picture, 0, 0, w, h_);
    },
    paint: paintToken,
    describe: (cell) => (state.shown[cell] === OPEN ? "open" : state.given[cell] !== OPEN ? "locked" : "drawn"),
    brush: (cells, isFirst) => change(tool, (index) => cells.includes(index), isFirst),
    key(event, cell) {
      const hit = (index) => index === cell;
      if (event.key === "Delete" || event.key === "Backspace") change("erase", hit, true);
      else if (event.key.toLowerCase() === "l") change(state.given[cell] === OPEN ? "lock" : "unlock", hit, true);
      else return false;
      return true;
    },
  });

  function change(how, hit, isFirst) {
    (isFirst ? context.commit : context.amend)({ erase: openUp, lock, unlock }[how](doc(), hit));
  }

  /** Open tokens cover the picture; locked ones have a dot. */
  function paintToken(canvas, cell, { x, y, size }, colours) {
    const open = state.shown[cell] === OPEN || (!state.picture && !missing);
    if (missing && !open) {
      canvas.fillStyle = hue(state.shown[cell], model.num_classes);
      canvas.fillRect(x, y, size + 0.5, size + 0.5);
    }
    const veil = open ? 1 : state.sure ? 0.75 * (1 - state.sure[cell]) : 0;
    if (veil > 0.02) {
      canvas.globalAlpha = veil;
      canvas.fillStyle = (Math.floor(cell / width) + cell) % 2 ? colours.open : colours.other;
      canvas.fillRect(x, y, size + 0.5, size + 0.5);
      canvas.globalAlpha = 1;
    }
    if (state.given[cell] !== OPEN) {
      canvas.fillStyle = colours.accent;
      canvas.beginPath();
      canvas.arc(x + size / 2, y + size / 2, Math.min(Math.max(1.5, size / 10), 4), 0, 7);
      canvas.fill();
    }
  }

  /** Show a picture of these tokens as soon as it is there. One is asked for at a time; of those that wait, the newest. */
  async function picture(tokens) {
    wanted = tokens;
    if (asking) return;
    asking = true;
    const image = await pictures.of(tokens);
    asking = false;
    if (wanted === tokens || !state.picture) state.picture = image;
    grid.repaint();
    if (wanted !== null && wanted !== tokens && image) picture(wanted);
  }

  const tools = [["erase", "eraser", "Erase"], ["lock", "lock", "Lock"], ["unlock", "unlock", "Unlock"]].map(([name, symbol, title]) =>
    button(title, () => {
      tool = name;
      tools.forEach((element, i) => element.setAttribute("aria-pressed", String(["erase", "lock", "unlock"][i] === name)));
    }, { icon: symbol, class: "tool", pressed: name === "erase" }));
  const size = h("select", { "aria-label": "Size of the brush", on: { change: () => { brush = Number(size.value); } } },
    ...BRUSHES.map((side) => h("option", { value: side, text: `${side} × ${side}`, selected: side === brush })));

  return {
    element: h("div", { class: "image-editor" }, missing && h("p", { class: "hint", text: missing }), grid.element),
    tools: h("div", { class: "tools", role: "toolbar", "aria-label": "Tools of the picture" }, h("div", { class: "group" }, ...tools), size),
    fillLabel, plainVariants: !missing, plan: (action, document_) => plan(action, document_, model, null), theme: grid.repaint,
    show({ object, result, frame, drawn, chosen }) {
      const open = frame && flat(frame.open);
      const shown = merged(object, frame ? frame.object : result);
      state = {
        ...state, given: flat(object), shown: flat(shown),
        sure: frame && flat(frame.sure).map((sure, i) => (open[i] ? sure : 1)),
      };
      const whole = drawn && !frame && hasOpen(shown) ? mapped(shown, (value, old) => (value === OPEN ? old : value), drawn.objects[chosen]) : shown;
      if (missing) wanted = null;
      else if (!hasOpen(whole)) picture(whole);
      else state.picture = wanted = null;
      grid.repaint();
    },
    thumbnail(object, { against }) {
      if (missing) return mosaic(object, against, width, model.num_classes);
      const image = h("img", { class: "thumbnail square", alt: "" });
      pictures.of(object).then((loaded) => { if (loaded) image.src = loaded.src; });
      return image;
    },
  };
}

/** Pictures of tokens, asked of the server once. */
class Pictures {
  #known = new Map();

  constructor(model, fail) { Object.assign(this, { model, fail }); }

  /** The picture of an object; null where there is none. */
  of(object) {
    const key = JSON.stringify(object);
    if (!this.#known.has(key)) {
      this.#known.set(key, this.#ask(object));
      if (this.#known.size > KEPT) this.#known.delete(this.#known.keys().next().value);
    }
    return this.#known.get(key);
  }

  async #ask(object) {
    try {
      const [source] = await api.pictures(this.model, [object]);
      const image = new Image();
      image.src = source;
      await image.decode();
      return image;
    } catch (error) {
      this.fail(error);
      return null;
    }
  }
}
