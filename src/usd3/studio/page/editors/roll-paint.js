/** Paints the piano roll: rows, bars, notes, keys. */

import { colour } from "../dom.js";
import { isBlack, pitchName, runsOf } from "../music.js";
import { OPEN } from "../objects.js";

/** The colours of the theme that is on. */
export const palette = () => ({
  white: colour("--roll-white"), black: colour("--roll-black"), line: colour("--roll-line"), beat: colour("--roll-beat"),
  bar: colour("--roll-bar"), ink: colour("--ink"), muted: colour("--muted"), card: colour("--card"),
  accent: colour("--accent"), soft: colour("--accent-soft"), key: colour("--key-white"), keyBlack: colour("--key-black"),
  voices: [0, 1, 2, 3].map((voice) => colour(`--voice-${voice}`)), sans: colour("--sans"), font: "11px " + colour("--sans"),
});

/**
 * @typedef {Object} RollState what is shown
 * @property {number[][]} given pitches of each voice, step by step; -1 is open
 * @property {number[][]} shown the same with what was drawn
 * @property {number[][]|null} sure of each voice and step in [0, 1], while it is being drawn
 * @property {{from: number, to: number, voice: number|null}|null} selection
 * @property {{step: number, pitch: number}|null} cursor of the keyboard
 * @property {number} voice the active one
 * @property {number|null} playhead
 * @property {number} rest the category of a rest
 */

/** Paint everything. */
export function paint(context, view, state, colours, signature) {
  context.clearRect(0, 0, view.width, view.height);
  context.save();
  context.beginPath();
  context.rect(view.keys, 0, view.inner, view.height);
  context.clip();
  rows(context, view, colours);
  lines(context, view, colours, signature);
  if (state.selection) selection(context, view, state.selection, colours);
  voices(context, view, state, colours);
  if (state.shown.every((voice) => voice.every((pitch) => pitch === OPEN))) hint(context, view, colours);
  ruler(context, view, colours, signature);
  if (state.cursor) cursor(context, view, state.cursor, colours);
  if (state.playhead !== null) playhead(context, view, state.playhead, colours);
  context.restore();
  keys(context, view, state, colours);
}

function pitches(view) {
  const first = Math.min(view.high, Math.ceil(view.top));
  const last = Math.max(view.low, Math.floor(view.top - view.rows));
  return Array.from({ length: Math.max(0, first - last + 1) }, (_, i) => first - i);
}

function rows(context, view, colours) {
  context.fillStyle = colours.white;
  context.fillRect(view.keys, view.ruler, view.inner, view.bottom - view.ruler);
  for (const pitch of pitches(view)) {
    if (isBlack(pitch)) {
      context.fillStyle = colours.black;
      context.fillRect(view.keys, view.y(pitch), view.inner, view.rowHeight);
    } else if (pitch % 12 === 0 || pitch % 12 === 5) {
      context.fillStyle = colours.line;
      context.fillRect(view.keys, view.y(pitch) + view.rowHeight - 0.5, view.inner, 1);
    }
  }
}

function lines(context, view, colours, { steps_per_beat: beat, steps_per_bar: bar }) {
  const last = Math.min(view.steps, view.left + view.shownSteps + 1);
  for (let step = Math.floor(view.left); step <= last; step++) {
    const isBar = step % bar === 0;
    const isBeat = step % beat === 0;
    if (!isBeat && view.stepWidth < 9) continue;
    context.fillStyle = isBar ? colours.bar : isBeat ? colours.beat : colours.line;
    context.fillRect(Math.round(view.x(step)), view.ruler, 1, view.height - view.ruler);
  }
}

function selection(context, view, { from, to }, colours) {
  const [x, width] = [view.x(from), (to - from) * view.stepWidth];
  context.globalAlpha = 0.13;
  context.fillStyle = colours.accent;
  context.fillRect(x, view.ruler, width, view.height - view.ruler);
  context.globalAlpha = 1;
  context.fillRect(x - 1, view.ruler, 2, view.height - view.ruler);
  context.fillRect(x + width - 1, view.ruler, 2, view.height - view.ruler);
}

/** The active voice last, on top of the others. */
function voices(context, view, state, colours) {
  context.save();
  context.beginPath();
  context.rect(view.keys, view.ruler, view.inner, view.height - view.ruler);
  context.clip();
  context.fillStyle = colours.card;
  context.fillRect(view.keys, view.bottom, view.inner, view.lane);
  context.fillStyle = colours.bar;
  context.fillRect(view.keys, view.bottom, view.inner, 1);
  const order = state.shown.map((_, voice) => voice).sort((a, b) => (a === state.voice) - (b === state.voice));
  for (const voice of order) {
    for (const part of partsOf(state, voice)) {
      if (part.end > view.left && part.start < view.left + view.shownSteps + 1) block(context, view, state, part, voice, colours);
    }
  }
  context.restore();
}

/** Runs of one pitch and one look: given, drawn, or being drawn so and so surely. */
function partsOf(state, voice) {
  const [given, shown, sure] = [state.given[voice], state.shown[voice], state.sure?.[voice]];
  const looks = shown.map((pitch, step) => {
    if (pitch === OPEN) return "open";
    if (given[step] !== OPEN) return `${pitch}:given:1`;
    const certainty = sure ? Math.round(sure[step] * 8) / 8 : 1;
    return `${pitch}:drawn:${certainty}`;
  });
  return runsOf(looks).filter((run) => run.pitch !== "open").map(({ pitch: look, start, end }) => {
    const [pitch, kind, certainty] = look.split(":");
    return {
      pitch: Number(pitch), given: kind === "given", certainty: Number(certainty), start, end,
      begins: start === 0 || shown[start - 1] !== Number(pitch), ends: end === shown.length || shown[end] !== Number(pitch),
    };
  });
}

function block(context, view, state, part, voice, colours) {
  const isRest = part.pitch === state.rest;
  const inset = view.stepWidth > 5 ? 1 : 0.5;
  const x = view.x(part.start) + (part.begins ? inset : 0);
  const width = Math.max(1.5, (part.end - part.start) * view.stepWidth - (part.begins ? inset : 0) - (part.ends ? inset : 0));
  const laneRow = (view.lane - 4) / state.shown.length;
  const y = isRest ? view.bottom + 3 + voice * laneRow : view.y(part.pitch) + 0.5;
  const height = isRest ? Math.max(2, laneRow - 1) : view.rowHeight - 1;
  const radius = Math.min(4, height / 2.5, width / 2);
  const alpha = part.given ? 1 : 0.08 + 0.62 * part.certainty ** 1.2;
  context.globalAlpha = isRest ? alpha * 0.55 : alpha;
  context.fillStyle = colours.voices[voice % 4];
  context.beginPath();
  context.roundRect(x, y, width, height, [part.begins ? radius : 0, part.ends ? radius : 0, part.ends ? radius : 0, part.begins ? radius : 0]);
  context.fill();
  context.globalAlpha = 1;
  if (part.given && !isRest && part.begins && width > 10 && height > 8) {
    context.fillStyle = colours.card; // a rivet: this note is fixed
    context.beginPath();
    context.arc(x + Math.min(6, height / 2), y + height / 2, Math.min(2, height / 5), 0, 7);
    context.fill();
  }
}

/** What one can do with an empty roll. */
function hint(context, view, colours) {
  const narrow = view.inner < 500;
  const lines = narrow ? ["Tap to draw notes", "or generate a whole piece"] : ["Click to draw notes, drag to make them longer", "or generate a whole piece, and keep what you like"];
  context.textAlign = "center";
  context.textBaseline = "middle";
  lines.forEach((line, i) => {
    context.font = `${i === 0 ? 560 : 400} ${narrow ? 14 : 16}px ${colours.sans}`;
    context.fillStyle = colours.muted;
    context.fillText(line, view.keys + view.inner / 2, (view.ruler + view.bottom) / 2 + (i - 0.5) * 26);
  });
}

function ruler(context, view, colours, { steps_per_bar: bar }) {
  context.fillStyle = colours.card;
  context.fillRect(view.keys, 0, view.inner, view.ruler);
  context.fillStyle = colours.bar;
  context.fillRect(view.keys, view.ruler - 1, view.inner, 1);
  context.fillStyle = colours.muted;
  context.font = colours.font;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const every = view.stepWidth * bar < 26 ? 4 : view.stepWidth * bar < 44 ? 2 : 1;
  for (let step = 0, number = 1; step < view.steps; step += bar, number++) {
    if ((number - 1) % every === 0) context.fillText(String(number), view.x(step) + 5, view.ruler / 2);
  }
}

function cursor(context, view, { step, pitch, length }, colours) {
  const y = pitch === null ? view.bottom + 1 : view.y(pitch);
  const height = pitch === null ? view.lane - 2 : view.rowHeight;
  context.strokeStyle = colours.ink;
  context.lineWidth = 2;
  context.beginPath();
  context.roundRect(view.x(step), y, Math.max(4, length * view.stepWidth), height, 3);
  context.stroke();
}

function playhead(context, view, step, colours) {
  const x = view.x(step);
  context.fillStyle = colours.accent;
  context.fillRect(x - 1, view.ruler - 4, 2, view.height - view.ruler + 4);
  context.beginPath();
  context.arc(x, view.ruler - 7, 5, 0, 7);
  context.fill();
}

/** The keyboard at the left; keys that sound have the colour of their voice. */
function keys(context, view, state, colours) {
  context.fillStyle = colours.card;
  context.fillRect(0, 0, view.keys, view.height);
  context.save();
  context.beginPath();
  context.rect(0, view.ruler, view.keys, view.bottom - view.ruler);
  context.clip();
  const sounding = new Map();
  if (state.playhead !== null) state.shown.forEach((pitches_, voice) => sounding.set(pitches_[Math.floor(state.playhead)], voice));
  context.font = `500 ${Math.min(11, view.rowHeight + 1)}px ${colours.sans}`;
  for (const pitch of pitches(view)) {
    const [y, black, voice] = [view.y(pitch), isBlack(pitch), sounding.get(pitch)];
    context.fillStyle = voice !== undefined ? colours.voices[voice % 4] : black ? colours.keyBlack : colours.key;
    context.fillRect(0, y, black ? view.keys * 0.62 : view.keys - 1, view.rowHeight - (black ? 0 : 0.5));
    context.fillStyle = colours.line;
    if (pitch % 12 === 0 || pitch % 12 === 5) context.fillRect(0, y + view.rowHeight - 0.5, view.keys, 1);
    if (pitch % 12 === 0 && view.rowHeight >= 6) {
      context.fillStyle = "#5d5750";
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(pitchName(pitch), view.keys - 7, y + view.rowHeight / 2);
    }
  }
  context.restore();
  context.fillStyle = colours.bar;
  context.fillRect(view.keys - 1, 0, 1, view.height);
  context.fillStyle = colours.muted;
  context.font = colours.font;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText("rest", view.keys - 7, view.bottom + view.lane / 2 + 1);
}
