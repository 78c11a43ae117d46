/** Notes of an object, as pure functions. A run of one pitch in a voice is one note. */

import { OPEN } from "./objects.js";

/**
 * @typedef {Object} Note
 * @property {number} voice
 * @property {number} pitch as in MIDI
 * @property {number} start first step
 * @property {number} end step after the last
 */

const NAMES = ["C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B"];
const SPOKEN = ["C", "C sharp", "D", "E flat", "E", "F", "F sharp", "G", "A flat", "A", "B flat", "B"];

export const pitchName = (pitch) => `${NAMES[pitch % 12]}${Math.floor(pitch / 12) - 1}`;
export const pitchSpoken = (pitch) => `${SPOKEN[pitch % 12]} ${Math.floor(pitch / 12) - 1}`;
export const isBlack = (pitch) => [1, 3, 6, 8, 10].includes(pitch % 12);

/** The pitches of one voice, step by step. */
export const voiceOf = (object, voice) => (Array.isArray(object[0]) ? object.map((row) => row[voice]) : object);

/** The same object with the pitches of one voice changed: `change(pitch, step)`. */
export const withVoice = (object, voice, change) =>
  object.map((row, step) =>
    Array.isArray(row) ? row.map((pitch, i) => (i === voice ? change(pitch, step) : pitch)) : change(row, step));

/** @returns {Note[]} the runs of equal values of a voice, those of rests and open steps too */
export function runsOf(pitches, voice = 0) {
  const runs = [];
  pitches.forEach((pitch, step) => {
    const last = runs.at(-1);
    if (last && last.pitch === pitch) last.end = step + 1;
    else runs.push({ voice, pitch, start: step, end: step + 1 });
  });
  return runs;
}

/** @returns {Note[]} all notes, sorted by their start */
export function notesOf(object, voices, rest) {
  const runs = voices.flatMap((_, voice) => runsOf(voiceOf(object, voice), voice));
  return runs.filter(({ pitch }) => pitch !== rest && pitch !== OPEN).sort((a, b) => a.start - b.start);
}

/** Lowest and highest pitch of the notes; null where there are none. */
export function rangeOf(notes) {
  if (notes.length === 0) return null;
  const pitches = notes.map((note) => note.pitch);
  return { low: Math.min(...pitches), high: Math.max(...pitches) };
}

/** Such as "bar 2, beat 3". */
export function placeOf(step, { steps_per_bar: bar, steps_per_beat: beat }) {
  const part = step % beat;
  const place = `bar ${Math.floor(step / bar) + 1}, beat ${Math.floor((step % bar) / beat) + 1}`;
  return part === 0 ? place : `${place}, sixteenth ${part + 1}`;
}
