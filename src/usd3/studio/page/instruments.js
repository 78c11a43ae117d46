/**
 * The sounds of the synthesiser: the strength of each partial tone, and how the loudness goes.
 *
 * Attack in seconds, decay and release as time constants, sustain as a share, detune in cents; `bright` is the limit of
 * the low-pass as a multiple of the tone.
 */
export const INSTRUMENTS = {
  felt: { title: "Felt piano", wave: [0, 1, 0.42, 0.2, 0.11, 0.05, 0.03, 0.015], attack: 0.006, decay: 0.55, sustain: 0.12, release: 0.13, detune: 2.5, bright: 7 },
  organ: { title: "Chamber organ", wave: [0, 1, 0.55, 0.18, 0.32, 0.03, 0.1, 0.02, 0.12], attack: 0.03, decay: 0.4, sustain: 0.72, release: 0.06, detune: 3.5, bright: 9 },
  strings: { title: "Soft strings", wave: [0, 1, 0.5, 0.36, 0.25, 0.19, 0.15, 0.12, 0.1, 0.08], attack: 0.09, decay: 0.5, sustain: 0.8, release: 0.14, detune: 7, bright: 5 },
  bells: { title: "Glass bells", wave: [0, 1, 0.06, 0.3, 0.02, 0.14, 0, 0.08], attack: 0.003, decay: 0.38, sustain: 0.03, release: 0.35, detune: 1.5, bright: 12 },
};

/** The sound of this name, or the first one. */
export const instrument = (name) => INSTRUMENTS[name] ?? INSTRUMENTS.felt;
