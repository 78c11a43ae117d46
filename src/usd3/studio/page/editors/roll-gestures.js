/** What the tools of the piano roll do: each returns a gesture `{move(place), end(), cancel()}`. */

import { lock, openUp, put, unlock } from "../edits.js";
import { runsOf } from "../music.js";
import { OPEN } from "../objects.js";

/**
 * @param {Object} roll `doc()`, `shown(voice)`, `voice`, `voices`, `rest`, `length`, `hits(voice, from, to)`, `commit`,
 *   `amend`, `forget`, `select`, `chooseVoice`, `sound(pitch)`
 */
export const gestures = {
  draw: (roll, place) => {
    const pitch = place.pitch ?? roll.rest;
    const note = noteAt(roll, place, roll.voice);
    if (note) return stretch(roll, note, place);
    const other = voiceAt(roll, place);
    if (other !== null && place.pitch !== null) {
      roll.chooseVoice(other);
      return null;
    }
    return add(roll, pitch, place);
  },
  erase: (roll, place) => sweep(roll, place, (doc, note) => openUp(doc, roll.hits(note.voice, note.start, note.end))),
  lock: (roll, place) => {
    const first = anyNoteAt(roll, place);
    const change = first && roll.isGiven(first) ? unlock : lock;
    return sweep(roll, place, (doc, note) => change(doc, roll.hits(note.voice, note.start, note.end)));
  },
  select: (roll, place) => {
    const first = snapped(place.step, roll.length);
    const spread = (to) => roll.select(
      Math.min(first, snapped(to.step, roll.length)), Math.max(first, snapped(to.step, roll.length)) + roll.length);
    spread(place);
    return { move: spread, end() {}, cancel: () => roll.select(null) };
  },
};

export const snapped = (step, length) => Math.floor(step / length) * length;

/** The note of a voice under a place; of rests, too. Null where there is none. */
export function noteAt(roll, { step, pitch }, voice) {
  const wanted = pitch ?? roll.rest;
  const run = runsOf(roll.shown(voice), voice).find(({ start, end }) => start <= step && step < end);
  return run && run.pitch === wanted ? run : null;
}

function voiceAt(roll, place) {
  const voice = Array.from({ length: roll.voices }, (_, i) => i).find((i) => noteAt(roll, place, i));
  return voice === undefined ? null : voice;
}

/** The note under a place, of the active voice first. */
export function anyNoteAt(roll, place) {
  const voice = noteAt(roll, place, roll.voice) ? roll.voice : voiceAt(roll, place);
  return voice === null ? null : noteAt(roll, place, voice);
}

/** A new note, as long as it is dragged. */
function add(roll, pitch, place) {
  const base = roll.doc();
  const anchor = snapped(place.step, roll.length);
  const change = (to) => {
    const from = Math.min(anchor, snapped(to.step, roll.length));
    const until = Math.max(anchor + roll.length, to.step + 1);
    return put(base, pitch, roll.hits(roll.voice, from, until));
  };
  roll.commit(change(place));
  roll.sound(pitch);
  return { move: (to) => roll.amend(change(to)), end() {}, cancel: () => roll.forget() };
}

/** Drag a note to lengthen or shorten it; a click keeps one that was drawn, and erases one's own. */
function stretch(roll, note, place) {
  const base = roll.doc();
  let changed = false;
  const change = (to) => {
    const end = Math.max(note.start + 1, to.step + 1);
    const shorter = end < note.end ? openUp(base, roll.hits(note.voice, end, note.end)) : base;
    return put(shorter, note.pitch, roll.hits(note.voice, note.start, end));
  };
  return {
    move: (to) => {
      if (to.step === place.step && !changed) return;
      (changed ? roll.amend : roll.commit)(change(to));
      changed = true;
    },
    end: () => { if (!changed) toggle(roll, note); },
    cancel: () => { if (changed) roll.forget(); },
  };
}

/** Keep a note that was drawn, or erase one's own. */
export function toggle(roll, note) {
  const hit = roll.hits(note.voice, note.start, note.end);
  const given = roll.isGiven(note);
  roll.commit((given ? openUp : lock)(roll.doc(), hit));
  roll.sound(note.pitch);
  return given ? "erased" : "kept";
}

/** Change every note that the pointer touches, as one step of the history. */
function sweep(roll, place, change) {
  let changed = false;
  const touch = (to) => {
    const note = anyNoteAt(roll, to);
    if (!note || note.pitch === OPEN) return;
    (changed ? roll.amend : roll.commit)(change(roll.doc(), note));
    changed = true;
  };
  touch(place);
  return { move: touch, end() {}, cancel: () => { if (changed) roll.forget(); } };
}
