/** The editor of music: a piano roll of one voice or several. */

import { h, sharp } from "../dom.js";
import { fillLabel, lock, openUp, plan, put, unlock } from "../edits.js";
import { notesOf, pitchSpoken, placeOf, rangeOf, voiceOf } from "../music.js";
import { OPEN, mapped, merged } from "../objects.js";
import { anyNoteAt, gestures, noteAt, snapped, toggle } from "./roll-gestures.js";
import { listen, listenKeys } from "./roll-input.js";
import { minimap, thumbnail } from "./roll-mini.js";
import { paint, palette } from "./roll-paint.js";
import { lengthChoice, toolbar, selectionBar } from "./roll-tools.js";
import { RollView } from "./roll-view.js";

const HEARD = { low: 55, high: 84 }; // pitches that one voice shows first

export const labels = { fill: "Fill the rest", fillSelection: "Fill the selection" };
export const keys = [
  ["Arrow keys", "move the cursor; with Ctrl by a bar or an octave"], ["Enter or Space", "draw or erase a note; keep one that was drawn"],
  ["L", "lock or unlock"], ["R", "put a rest"], ["Delete", "erase the note, or the selection"],
  ["Shift + ← →", "select; Escape ends the selection"], ["1 … 4", "choose the voice"], ["[ and ]", "shorter or longer notes"],
  ["+ and −", "zoom"], ["P", "play or stop"],
];

/** @param {Object} context of the studio: `model`, `doc()`, `commit`, `amend`, `forget`, `announce`, `synth`, `play`, `refresh` */
export function create(context) {
  const { model } = context;
  const signature = model.editor;
  const names = signature.voices;
  const usual = names.length === 1 ? HEARD : { low: Math.min(...names.map((v) => v.low)), high: Math.max(...names.map((v) => v.high)) };
  const state = {
    given: [], shown: [], sure: null, selection: null, cursor: null, voice: 0, playhead: null, rest: signature.rest,
  };
  const view = new RollView({
    steps: model.shape[0], usual,
    low: Math.min(...names.map((v) => v.low)), high: Math.max(...names.map((v) => v.high)),
  });
  let tool = "draw";
  let start = 0; // where playing begins
  let colours = palette();
  let waiting = false;

  const canvas = h("canvas", {
    class: "roll", tabindex: 0, role: "application", "aria-roledescription": "piano roll",
    "aria-label": `Piano roll, ${names.length === 1 ? "one voice" : `${names.length} voices`}, ${model.shape[0]} steps. Arrow keys move, Enter draws or erases, L locks.`,
  });
  const frame = h("div", { class: "roll-frame" }, canvas);

  const repaint = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (view.width === 0) return;
      paint(sharp(canvas, view.width, view.height), view, state, colours, signature);
      map.paint();
    });
  };

  /** What gestures and keys work with. */
  const roll = {
    voices: names.length, rest: signature.rest, length: signature.steps_per_beat,
    get voice() { return state.voice; },
    doc: () => ({ object: context.doc().object, result: context.doc().result }),
    shown: (voice) => state.shown[voice],
    isGiven: ({ voice, start: from }) => state.given[voice][from] !== OPEN,
    hits: (voice, from, to) => (index) => {
      const step = Math.floor(index / names.length);
      return from <= step && step < to && (voice === null || index % names.length === voice);
    },
    commit: context.commit, amend: context.amend, forget: context.forget,
    tool: () => tool,
    gesture: (name, place) => { state.cursor = null; return gestures[name](roll, place); },
    sound: (pitch) => { if (pitch !== roll.rest) context.synth.preview(pitch, state.voice); },
    key: (pitch) => context.synth.preview(pitch, state.voice),
    seek: (step) => { roll.select(null); start = step; state.playhead = step; context.seek(step); repaint(); },
    select(from, to) {
      state.selection = from === null ? null : { from, to: Math.min(to, view.steps), voice: state.selection?.voice ?? null };
      bar.show(state.selection);
      context.refresh();
      repaint();
    },
    hasSelection: () => state.selection !== null,
    hover: ({ x, y }) => { canvas.style.cursor = x < view.keys ? "pointer" : y < view.ruler ? "text" : CURSORS[tool]; },
    repaint,
    chooseVoice(voice) {
      if (voice >= names.length) return;
      state.voice = voice;
      tools.showVoice(voice);
      context.announce(names[voice].name);
      repaint();
    },
    move(steps, pitches, event) {
      const cursor = state.cursor ?? { step: snapped(Math.max(0, Math.ceil(view.left)), roll.length), pitch: middle(), length: roll.length };
      const far = event.ctrlKey || event.metaKey;
      const step = cursor.step + (state.cursor ? steps * (far ? signature.steps_per_bar : roll.length) : 0);
      const pitch = (cursor.pitch ?? view.low - 1) + (state.cursor ? pitches * (far ? 12 : 1) : 0);
      moveCursor(step, pitch < view.low ? null : Math.min(pitch, view.high));
      if (event.shiftKey && steps !== 0) extend(steps);
    },
    moveTo: (step) => moveCursor(step, state.cursor ? state.cursor.pitch : middle()),
    press() {
      if (!state.cursor) return roll.move(0, 0, {});
      const note = noteAt(roll, state.cursor, state.voice);
      const done = note ? toggle(roll, note) : place(state.cursor.pitch ?? roll.rest);
      context.announce(`${here()}: ${done}`);
    },
    putRest() { if (state.cursor) { place(roll.rest); context.announce(`${here()}: rest`); } },
    toggleLock() {
      if (state.selection) return onSelection(selectionIsGiven() ? "unlock" : "lock");
      const note = state.cursor && anyNoteAt(roll, state.cursor);
      if (!note) return context.announce("No note here");
      const given = roll.isGiven(note);
      context.commit((given ? unlock : lock)(roll.doc(), roll.hits(note.voice, note.start, note.end)));
      context.announce(given ? "unlocked" : "locked");
    },
    erase() {
      if (state.selection) return onSelection("open");
      const note = state.cursor && anyNoteAt(roll, state.cursor);
      if (note) context.commit(openUp(roll.doc(), roll.hits(note.voice, note.start, note.end)));
      context.announce(note ? `${here()}: erased` : "No note here");
    },
    zoom(factor) { view.zoom(factor, state.cursor ? view.x(state.cursor.step) : undefined); repaint(); },
    changeLength: (by) => tools.changeLength(by),
    play: () => context.play(),
  };
  const CURSORS = { draw: "crosshair", erase: "cell", lock: "pointer", select: "text" };

  const middle = () => Math.round(view.top - view.rows / 2);
  const here = () => {
    const { step, pitch } = state.cursor;
    return `${placeOf(step, signature)}, ${pitch === null ? "rest" : pitchSpoken(pitch)}`;
  };

  function place(pitch) {
    const { step } = state.cursor;
    context.commit(put(roll.doc(), pitch, roll.hits(state.voice, step, step + roll.length)));
    roll.sound(pitch);
    return "drawn";
  }

  function moveCursor(step, pitch) {
    const last = snapped(view.steps - 1, roll.length);
    state.cursor = { step: Math.min(Math.max(step, 0), last), pitch, length: roll.length };
    view.show(state.cursor.step, pitch ?? undefined);
    const note = anyNoteAt(roll, state.cursor);
    const what = note ? `${names[note.voice].name} note, ${roll.isGiven(note) ? "locked" : "drawn"}` : "empty";
    context.announce(`${here()}: ${what}`);
    repaint();
  }

  /** Grow or shrink the selection at the end where the cursor is. */
  function extend(steps) {
    const { step } = state.cursor;
    const anchor = state.selection?.anchor ?? Math.max(0, step - steps * roll.length);
    roll.select(Math.min(anchor, step), Math.max(anchor, step) + roll.length);
    state.selection.anchor = anchor;
    context.announce(`selected from ${placeOf(state.selection.from, signature)} to ${placeOf(state.selection.to - 1, signature)}`);
  }

  const selected = () => state.selection && roll.hits(state.selection.voice, state.selection.from, state.selection.to);
  const selectionIsGiven = () => {
    const hit = selected();
    return context.doc().object.flat().every((value, i) => !hit(i) || value !== OPEN);
  };
  function onSelection(what) {
    const change = { lock, unlock, open: openUp, rest: (doc, hit) => put(doc, roll.rest, hit) }[what];
    context.commit(change(roll.doc(), selected()));
    context.announce({ lock: "selection locked", unlock: "selection unlocked", open: "selection erased", rest: "selection is a rest" }[what]);
  }

  /** Scroll to the first step that is being drawn, where none is in sight. */
  function showOpen() {
    const isOpen = (step) => state.given.some((pitches) => pitches[step] === OPEN);
    const steps = Array.from({ length: view.steps }, (_, step) => step).filter(isOpen);
    const inSight = steps.some((step) => step >= view.left && step < view.left + view.shownSteps);
    if (steps.length > 0 && !inSight) view.show(steps[0]);
  }

  const tools = toolbar({
    names, roll, length: lengthChoice(signature),
    onTool: (name) => { tool = name; },
    onLength: (length) => { roll.length = length; if (state.cursor) state.cursor.length = length; repaint(); },
  });
  const bar = selectionBar({
    names, signature, act: onSelection, clear: () => roll.select(null),
    onVoice: (voice) => { state.selection.voice = voice; context.refresh(); },
  });
  const map = minimap(view, state, signature, () => colours, repaint);

  listen(canvas, view, roll);
  listenKeys(canvas, roll);
  canvas.addEventListener("focus", repaint);
  new ResizeObserver(() => { view.resize(frame.clientWidth, frame.clientHeight); repaint(); }).observe(frame);

  return {
    element: h("div", { class: "roll-editor" }, frame, map.element, bar.element), tools: tools.element,
    show({ object, result, frame: drawing }) {
      const shown = drawing ? merged(object, drawing.object) : merged(object, result);
      names.forEach((_, voice) => {
        state.given[voice] = voiceOf(object, voice);
        state.shown[voice] = voiceOf(shown, voice);
      });
      const sure = drawing && mapped(drawing.sure, (value, open) => (open ? value : 1), drawing.open);
      const begins = sure !== null && state.sure === null;
      state.sure = sure && names.map((_, voice) => voiceOf(sure, voice));
      if (begins) showOpen();
      repaint();
    },
    /** Scroll to all notes, after a draw or a file. */
    reveal() { view.reveal(rangeOf(notesOf(merged(context.doc().object, context.doc().result), names, roll.rest))); repaint(); },
    selected,
    plan: (action, doc) => (action === "harmonise" ? harmonise(doc) : plan(action, doc, model, selected())),
    fillLabel, canHarmonise: names.length > 1,
    thumbnail: (object, options) => thumbnail(object, { ...options, signature }),
    notes: (object) => notesOf(object, names, roll.rest),
    from: () => state.selection?.from ?? start, to: () => state.selection?.to ?? view.steps,
    playhead(step) {
      state.playhead = step;
      if (step !== null && context.synth.playing) view.follow(step);
      repaint();
    },
    complete: (object) => mapped(object, (value) => (value === OPEN ? roll.rest : value)),
    theme() { colours = palette(); repaint(); },
  };

  /** Keep one voice, the active one or else the fullest, and open the others. The piece ends with the bar of its last note. */
  function harmonise(doc) {
    const shown = merged(doc.object, doc.result);
    const isNote = (pitch) => pitch !== OPEN && pitch !== roll.rest;
    const count = (object, voice) => voiceOf(object, voice).filter(isNote).length;
    const counts = names.map((_, voice) => count(doc.object, voice));
    const fullest = counts.indexOf(Math.max(...counts));
    const source = counts[state.voice] > 0 || counts[fullest] === 0 ? state.voice : fullest;
    if (count(shown, source) === 0) throw new Error(`Draw some notes of the ${names[source].name.toLowerCase()} first.`);
    const from = counts[source] > 0 ? doc.object : shown;
    const bar = signature.steps_per_bar;
    const end = (Math.floor(voiceOf(from, source).findLastIndex(isNote) / bar) + 1) * bar;
    const send = from.map((row, step) => row.map((pitch, voice) => (step >= end ? roll.rest : voice === source ? pitch : OPEN)));
    return { send, keep: send };
  }
}
