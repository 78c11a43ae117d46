/** The editor of boards, such as Sudoku: type what is given, watch the rest being filled. */

import { button, colour, h, sharp } from "../dom.js";
import { fillLabel, lock, openUp, plan, put } from "../edits.js";
import { OPEN, flat, merged } from "../objects.js";

export const labels = { fill: "Solve", generate: "Generate a board" };
export const keys = [
  ["Arrow keys", "move"], ["A symbol", "write it, and go on"], ["Delete, space or .", "open the cell"],
  ["L", "keep what was drawn, or open it again"], ["Ctrl + V", "paste a whole board, such as 81 digits and dots"],
];

/** @param {Object} context see studio.js */
export function create(context) {
  const { model } = context;
  const { symbols, box } = model.editor;
  const [height, width] = model.shape;
  let current = 0;

  const cells = Array.from({ length: height * width }, (_, index) => {
    const [row, column] = [Math.floor(index / width), index % width];
    const ends = [box && column % box === box - 1 && column < width - 1 ? "box-right" : "", box && row % box === box - 1 && row < height - 1 ? "box-bottom" : ""];
    return h("button", {
      type: "button", role: "gridcell", class: `cell ${ends.join(" ")}`, tabindex: index === 0 ? 0 : -1,
      on: { focus: () => choose(index), click: (event) => event.currentTarget.focus() },
    }, h("span"));
  });
  const rows = Array.from({ length: height }, (_, row) => h("div", { role: "row", class: "board-row" }, ...cells.slice(row * width, (row + 1) * width)));
  const grid = h("div", { class: "board", role: "grid", "aria-label": `Board of ${height} by ${width}. Arrow keys move, symbols are typed.` }, ...rows);
  grid.style.setProperty("--columns", width);
  grid.style.setProperty("--rows", height);
  const pad = h("div", { class: "pad", role: "group", "aria-label": "Symbols" },
    ...[...symbols].map((symbol, value) => button(symbol, () => { write(value); cells[current].focus({ preventScroll: true }); }, { class: "digit" })),
    button("", () => write(OPEN), { icon: "eraser", title: "Open the cell", class: "digit" }));

  const doc = () => ({ object: context.doc().object, result: context.doc().result });

  function choose(index) {
    cells[current].tabIndex = -1;
    current = index;
    cells[current].tabIndex = 0;
    const value = flat(merged(doc().object, doc().result))[index];
    grid.querySelectorAll(".peer, .same").forEach((cell) => cell.classList.remove("peer", "same"));
    cells.forEach((cell, i) => {
      if (i === index) return;
      cell.classList.toggle("peer", Math.floor(i / width) === Math.floor(index / width) || i % width === index % width || sameBox(i, index));
      cell.classList.toggle("same", value !== OPEN && cell.dataset.value === String(value));
    });
  }

  const sameBox = (a, b) => box && Math.floor(a / width / box) === Math.floor(b / width / box) && Math.floor((a % width) / box) === Math.floor((b % width) / box);

  function go(rows_, columns) {
    const [row, column] = [Math.floor(current / width) + rows_, (current % width) + columns];
    cells[Math.min(Math.max(row, 0), height - 1) * width + Math.min(Math.max(column, 0), width - 1)].focus();
  }

  function write(value) {
    const change = value === OPEN ? openUp : (before, hit) => put(before, value, hit);
    context.commit(change(doc(), (index) => index === current));
  }

  function keep() {
    const given = flat(doc().object)[current] !== OPEN;
    context.commit((given ? openUp : lock)(doc(), (index) => index === current));
    context.announce(given ? "open" : "kept");
  }

  const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e3], End: [0, 1e3], PageUp: [-1e3, 0], PageDown: [1e3, 0] };
  grid.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const value = symbolOf(event.key);
    if (MOVES[event.key]) go(...MOVES[event.key]);
    else if (value !== null) { write(value); next(1); }
    else if (event.key === "Backspace") { write(OPEN); next(-1); }
    else if (["Delete", " ", ".", "0", "_"].includes(event.key)) { write(OPEN); if (event.key !== "Delete") next(1); }
    else if (event.key.toLowerCase() === "l") keep();
    else return;
    event.preventDefault();
  });
  grid.addEventListener("paste", (event) => {
    const values = [...event.clipboardData.getData("text")].map((sign) => (".0_".includes(sign) && !symbols.includes(sign) ? OPEN : symbolOf(sign))).filter((value) => value !== null);
    event.preventDefault();
    if (values.length !== cells.length) return context.fail(new Error(`A board has ${cells.length} cells, but the clipboard has ${values.length} symbols.`));
    let at = 0;
    context.commit({ object: doc().object.map((row) => row.map(() => values[at++])), result: null });
  });

  const next = (by) => cells[Math.min(Math.max(current + by, 0), cells.length - 1)].focus();

  function symbolOf(key) {
    if (key.length !== 1) return null;
    const found = symbols.includes(key) ? symbols.indexOf(key) : symbols.indexOf(key.toUpperCase());
    return found < 0 ? null : found;
  }

  return {
    element: h("div", { class: "board-editor" }, grid, pad), tools: null, fillLabel: (document_) => fillLabel(document_, labels.fill).replace("Draw", "Solve"),
    plan: (action, document_) => plan(action, document_, model, null),
    show({ object, result, frame }) {
      const given = flat(object);
      const shown = flat(frame ? frame.object : merged(object, result));
      const [sure, open] = frame ? [flat(frame.sure), flat(frame.open)] : [null, null];
      cells.forEach((cell, index) => {
        const value = given[index] !== OPEN ? given[index] : shown[index];
        const isGiven = given[index] !== OPEN;
        const isOpen = !isGiven && Boolean(open?.[index]);
        const certainty = isOpen ? sure[index] : 1;
        cell.dataset.value = value;
        cell.classList.toggle("given", isGiven);
        cell.classList.toggle("drawn", !isGiven && value !== OPEN);
        cell.classList.toggle("guess", isOpen);
        cell.style.setProperty("--sure", certainty.toFixed(2));
        cell.firstElementChild.textContent = value === OPEN ? "" : symbols[value];
        const state = value === OPEN ? "open" : `${symbols[value]}, ${isGiven ? "given" : "drawn"}`;
        cell.setAttribute("aria-label", `Row ${Math.floor(index / width) + 1}, column ${(index % width) + 1}: ${state}`);
      });
    },
    thumbnail: (object, { against, request }) => picture(object, request, against, model),
  };
}

function picture(object, request, against, { editor: { symbols }, shape: [height, width] }) {
  const size = 132;
  const canvas = h("canvas", { class: "thumbnail square", "aria-hidden": "true" });
  const context = sharp(canvas, size, size);
  const [given, other] = [flat(request), against && flat(against)];
  context.font = `${Math.round(size / Math.max(width, height) * 0.72)}px ${colour("--sans")}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  flat(object).forEach((value, index) => {
    if (value === OPEN) return;
    context.fillStyle = other ? colour(other[index] === value ? "--bar-grey" : "--accent") : colour(given[index] !== OPEN ? "--ink" : "--accent");
    context.fillText(symbols[value], ((index % width) + 0.5) * (size / width), (Math.floor(index / width) + 0.5) * (size / height));
  });
  return canvas;
}
