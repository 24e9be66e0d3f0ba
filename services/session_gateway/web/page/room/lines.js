// @ts-check
/** What was said in a room, as it is shown. No I/O, no clock. */

import { bounded, MAX_SHOWN } from "../app/utterances.js";

/** @import { Heard, Line, SessionEvent, State } from "./types.js" */

const NOTHING = {
  joined: false,
  text: "",
  source: "",
  reason: "",
  count: 1,
  hasSpeech: false,
};

/**
 * @param {Heard} heard
 * @param {string} sessionId of the speaker here.
 * @returns {Line}
 */
function lineOf(heard, sessionId) {
  const { roomIndex, speaker, language, spokenLanguage, replayed } = heard;
  const isMine = sessionId !== "" && heard.sessionId === sessionId;
  const base = {
    ...NOTHING,
    key: `r${roomIndex}`,
    index: roomIndex,
    mine: isMine,
    speaker: speaker.slice(0, 64),
    language,
    spoken: spokenLanguage,
    replayed,
  };
  if (heard.type === "not-said") {
    const count = heard.untilIndex - roomIndex;
    return { ...base, state: "missing", reason: heard.reason, count };
  }
  const isOwn = language.toLowerCase() === spokenLanguage.toLowerCase();
  const source = isOwn ? "" : bounded(heard.texts.repaired || heard.texts.source);
  return { ...base, state: stateOf(heard.kind), text: bounded(heard.text), source };
}

/**
 * @param {import("../../../../../sdk/js/src/index.js").ResultKind} kind
 * @returns {Line["state"]}
 */
function stateOf(kind) {
  switch (kind) {
    case "HELD":
      return "held";
    case "NO_SPEECH":
      return "no-speech";
    default:
      return "said";
  }
}

/**
 * @param {State} state
 * @param {readonly Line[]} lines
 * @returns {State}
 */
function bound(state, lines) {
  const excess = Math.max(0, lines.length - MAX_SHOWN);
  return { ...state, lines: lines.slice(excess), forgotten: state.forgotten + excess };
}

/**
 * Something was said, or was not. What is shown already, because this tab has joined a second time, is
 * not shown again.
 *
 * @param {State} state
 * @param {Heard} heard
 * @returns {State}
 */
export function hears(state, heard) {
  const line = lineOf(heard, state.sessionId);
  if (state.lines.some(({ key }) => key === line.key)) {
    return state;
  }
  const joined = heard.type === "said" ? heard.joined : [];
  const lines = state.lines.map((each) => {
    if (each.state !== "held" || each.index === null) {
      return each;
    }
    if (heard.lost.includes(each.index)) {
      return { ...each, state: /** @type {const} */ ("missing"), reason: "HELD_AUDIO_LOST" };
    }
    return joined.includes(each.index) ? { ...each, joined: true } : each;
  });
  // Captions come in the order in which this speaker was cut.
  const pending = line.mine ? state.pending.slice(1) : state.pending;
  return bound({ ...state, pending }, [...lines, line]);
}

/**
 * The session of the speaker here reports something.
 *
 * @param {State} state
 * @param {SessionEvent} event
 * @returns {State}
 */
export function sessionSays(state, event) {
  switch (event.type) {
    case "finalized":
      return { ...state, pending: [...state.pending, event.index] };
    case "result":
      return event.room === null ? state : withReceipt(state, event.index, event.room);
    case "missing":
      return bound(settled(state, event.index), [
        ...state.lines,
        {
          ...NOTHING,
          key: `s${event.index}`,
          index: null,
          state: "missing",
          mine: true,
          speaker: state.name,
          language: state.language,
          spoken: state.language,
          replayed: false,
          reason: event.reason,
        },
      ]);
    default:
      return state;
  }
}

/**
 * @param {State} state
 * @param {number} index of the session.
 * @returns {State}
 */
function settled(state, index) {
  return { ...state, pending: state.pending.filter((each) => each !== index) };
}

/**
 * @param {State} state
 * @param {number} index of the session.
 * @param {import("./types.js").RoomReceipt} receipt
 * @returns {State}
 */
function withReceipt(state, index, receipt) {
  const kept = Object.entries(state.receipts).slice(-(MAX_SHOWN - 1));
  const receipts = { ...Object.fromEntries(kept), [receipt.roomIndex]: receipt };
  return { ...settled(state, index), receipts };
}
