/** A grid of cells on a canvas, with mouse, touch and keys: the ground of the editors of arrays and images. */

import { colour, h, sharp } from "../dom.js";

/**
 * @param {{rows: number, columns: number, label: string, paint: (context: CanvasRenderingContext2D, cell: number,
 *   place: {x: number, y: number, size: number}, colours: Object<string, string>) => void, before?: (context, width: number, height: number) => void,
 *   brush: (cells: number[], isFirst: boolean) => void, key: (event: KeyboardEvent, cell: number) => boolean,
 *   describe: (cell: number) => string, announce: (text: string) => void, brushSize?: () => number,
 *   largest?: number}} options `largest`: the side of a cell, in pixels
 */
export function cellGrid({ rows, columns, label, paint, before, brush, key, describe, announce, brushSize = () => 1, largest = 44 }) {
  const canvas = h("canvas", { class: "cells", tabindex: 0, role: "application", "aria-roledescription": "grid", "aria-label": label });
  const frame = h("div", { class: "cells-frame" }, canvas);
  let cursor = null;
  let hover = null;
  let held = null;
  let waiting = false;
  let size = 0;

  const repaint = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      size = Math.min(frame.clientWidth / columns, largest);
      if (size <= 0) return;
      const [width, height] = [size * columns, size * rows];
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      const context = sharp(canvas, width, height);
      context.clearRect(0, 0, width, height);
      before?.(context, width, height);
      const colours = { open: colour("--open"), other: colour("--open-other"), accent: colour("--accent"), ink: colour("--ink") };
      for (let cell = 0; cell < rows * columns; cell++) paint(context, cell, place(cell), colours);
      if (cursor !== null && document.activeElement === canvas) outline(context, [cursor], colours.ink, 2);
      if (hover !== null) outline(context, around(hover), colours.accent, 1);
    });
  };

  const place = (cell) => ({ x: (cell % columns) * size, y: Math.floor(cell / columns) * size, size });

  function outline(context, cells, line, width) {
    context.strokeStyle = line;
    context.lineWidth = width;
    const [first, last] = [place(Math.min(...cells)), place(Math.max(...cells))];
    context.strokeRect(first.x + 1, first.y + 1, last.x - first.x + size - 2, last.y - first.y + size - 2);
  }

  /** The cells below a brush. */
  function around(cell) {
    const reach = brushSize();
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    const first = -Math.floor((reach - 1) / 2);
    const cells = [];
    for (let y = first; y < first + reach; y++) {
      for (let x = first; x < first + reach; x++) {
        if (row + y >= 0 && row + y < rows && column + x >= 0 && column + x < columns) cells.push((row + y) * columns + column + x);
      }
    }
    return cells;
  }

  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [Math.floor((event.clientX - box.left) / size), Math.floor((event.clientY - box.top) / size)];
    return x >= 0 && y >= 0 && x < columns && y < rows ? y * columns + x : null;
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    held = cellAt(event);
    cursor = held;
    if (held !== null) brush(around(held), true);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    if (cell !== hover) { hover = event.pointerType === "mouse" ? cell : null; repaint(); }
    if (held === null || cell === null || cell === held) return;
    held = cell;
    brush(around(cell), false);
  });
  const release = () => { held = null; };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { hover = null; repaint(); });
  canvas.addEventListener("focus", repaint);
  canvas.addEventListener("blur", repaint);

  const MOVES = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  canvas.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    cursor ??= 0;
    if (MOVES[event.key] !== undefined) {
      const to = cursor + MOVES[event.key];
      const sameRow = Math.abs(MOVES[event.key]) > 1 || Math.floor(to / columns) === Math.floor(cursor / columns);
      if (to >= 0 && to < rows * columns && sameRow) cursor = to;
    } else if (event.key === "Enter" || event.key === " ") brush(around(cursor), true);
    else if (!key(event, cursor)) return;
    event.preventDefault();
    announce(`row ${Math.floor(cursor / columns) + 1}, column ${(cursor % columns) + 1}: ${describe(cursor)}`);
    repaint();
  });
  new ResizeObserver(repaint).observe(frame);
  return { element: frame, repaint, canvas };
}
