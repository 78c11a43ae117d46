/** Small pictures of music: the map below the roll, and those of the variants. */

import { colour, h, sharp } from "../dom.js";
import { notesOf, rangeOf, voiceOf } from "../music.js";

/** A map of the whole piece that scrolls the roll. */
export function minimap(view, state, signature, colours, repaint) {
  const canvas = h("canvas", { class: "minimap", tabindex: -1, "aria-hidden": "true" });
  let held = false;
  const scroll = (event) => {
    const box = canvas.getBoundingClientRect();
    view.left = ((event.clientX - box.left) / box.width) * view.steps - view.shownSteps / 2;
    view.keep();
    repaint();
  };
  canvas.addEventListener("pointerdown", (event) => { held = true; canvas.setPointerCapture(event.pointerId); scroll(event); });
  canvas.addEventListener("pointermove", (event) => { if (held) scroll(event); });
  canvas.addEventListener("pointerup", () => { held = false; });
  canvas.addEventListener("pointercancel", () => { held = false; });
  return {
    element: canvas,
    paint() {
      const whole = view.shownSteps >= view.steps - 0.01;
      canvas.hidden = whole;
      const [width, height] = [canvas.clientWidth, canvas.clientHeight];
      if (whole || width === 0) return;
      const context = sharp(canvas, width, height);
      context.clearRect(0, 0, width, height);
      const notes = state.shown.flatMap((pitches, voice) => notesOf(pitches, [0], signature.rest).map((note) => ({ ...note, voice })));
      bars(context, notes, rangeOf(notes), view.steps, width, height, 5, (note) => {
        context.globalAlpha = state.sure ? 0.1 + 0.9 * state.sure[note.voice][note.start] : 1; // pale while it is open
        return colours().voices[note.voice % 4];
      });
      context.globalAlpha = 0.14;
      context.fillStyle = colours().accent;
      const [x, w] = [(view.left / view.steps) * width, (view.shownSteps / view.steps) * width];
      context.beginPath();
      context.roundRect(x, 0, w, height, 6);
      context.fill();
      context.globalAlpha = 1;
      context.strokeStyle = colours().accent;
      context.beginPath();
      context.roundRect(x + 0.5, 0.5, w - 1, height - 1, 6);
      context.stroke();
    },
  };
}

/**
 * A picture of a variant, up to where a piece ends that was asked to end before the roll does.
 * @param {Object} options `against`: another object; what both share is grey
 */
export function thumbnail(object, { against, request, signature }) {
  const [width, height] = [240, 84];
  const canvas = h("canvas", { class: "thumbnail", "aria-hidden": "true" });
  const context = sharp(canvas, width, height);
  const notes = notesOf(object, signature.voices, signature.rest);
  const grey = colour("--bar-grey");
  const last = request.findLastIndex((pitches) => [pitches].flat().some((pitch) => pitch !== signature.rest));
  bars(context, notes, rangeOf(notes), last + 1 || object.length, width, height, 8, (note) => {
    const same = against && voiceOf(against, note.voice).slice(note.start, note.end).every((pitch) => pitch === note.pitch);
    return same ? grey : colour(`--voice-${note.voice % 4}`);
  });
  return canvas;
}

function bars(context, notes, range, steps, width, height, margin, paintOf) {
  if (!range) return;
  const row = (height - 2 * margin) / Math.max(range.high - range.low + 1, 14);
  const top = height / 2 - ((range.high - range.low + 1) * row) / 2;
  for (const note of notes) {
    context.fillStyle = paintOf(note);
    const w = ((note.end - note.start) / steps) * width;
    context.fillRect((note.start / steps) * width, top + (range.high - note.pitch) * row, Math.max(w - 0.5, 1), Math.max(row - 0.4, 1.6));
  }
}
