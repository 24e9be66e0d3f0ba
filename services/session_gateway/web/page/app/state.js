// @ts-check
/** The page's state, and what each action makes of it. No I/O, no clock. */

import { choose, settle } from "./offer.js";
import { nowMissing, sessionSays, takeSettled, voiceEnds, voiceStarts } from "./utterances.js";

/** @import { Action, Connection, SessionEvent, State } from "./types.js" */

/**
 * @param {Partial<State>} [chosen] what the user chose earlier.
 * @returns {State}
 */
export function initialState(chosen = {}) {
  return {
    interface: "en",
    languages: { a: "", b: "" },
    offer: { status: "loading", directions: [] },
    handsFree: false,
    turned: false,
    connection: "idle",
    session: 0,
    sessionIds: {},
    talk: null,
    hints: { a: "", b: "" },
    utterances: [],
    forgotten: 0,
    playing: "",
    problem: null,
    token: "",
    ...chosen,
  };
}

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State}
 */
export function reduce(state, action) {
  switch (action.type) {
    case "offer":
      return {
        ...state,
        offer: { status: "known", directions: action.directions },
        languages: settle(state.languages, action.directions, state.interface),
      };
    case "offer-failed":
      return { ...state, offer: { ...state.offer, status: "failed" } };
    case "choose":
      return {
        ...state,
        languages: choose(state.languages, action.side, action.language, state.offer.directions),
      };
    case "interface":
      return { ...state, interface: action.interface };
    case "hands-free":
      return { ...state, handsFree: action.on, hints: { a: "", b: "" } };
    case "turn":
      return { ...state, turned: !state.turned };
    case "problem":
      return { ...state, problem: action.problem };
    case "token":
      return { ...state, token: action.token };
    default:
      return conversation(state, action);
  }
}

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State}
 */
function conversation(state, action) {
  switch (action.type) {
    case "talk":
      return {
        ...state,
        talk: action.talk,
        hints: action.talk === null ? withoutOther(state.hints) : { a: "", b: "" },
      };
    case "hint":
      return { ...state, hints: { ...state.hints, [action.side]: action.hint } };
    case "playing":
      return { ...state, playing: action.key };
    case "speech":
      return {
        ...state,
        utterances: state.utterances.map((each) =>
          each.key === action.key ? { ...each, hasSpeech: action.has } : each,
        ),
      };
    case "voice-start":
      return voiceStarts(state, action);
    case "voice-end":
      return voiceEnds(state, action.take);
    case "take-settled":
      return takeSettled(state, action.take);
    case "take-dropped":
      return {
        ...state,
        utterances: state.utterances.filter((each) => each.take !== action.take || each.known),
      };
    case "take-failed":
      return nowMissing(state, (each) => each.take === action.take && !each.known, action.reason);
    default:
      return session(state, action);
  }
}

/**
 * Nobody speaks any more: "The other person is speaking." is over, other hints are still to be read.
 *
 * @param {State["hints"]} hints
 * @returns {State["hints"]}
 */
function withoutOther({ a, b }) {
  return { a: a === "hint.other" ? "" : a, b: b === "hint.other" ? "" : b };
}

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State}
 */
function session(state, action) {
  switch (action.type) {
    case "session-opening":
      return { ...state, session: action.session, connection: "connecting" };
    case "session-opened":
      return {
        ...connected(state, action.session, "connected"),
        // What was wrong with the session before is over.
        problem: null,
        sessionIds: { ...state.sessionIds, [action.session]: action.id },
      };
    case "session-closed":
      return nowMissing(
        connected(state, action.session, "idle"),
        (each) => each.session === action.session,
        "SESSION_LOST",
      );
    case "session-lost":
      return nowMissing(
        connected(state, action.session, "lost"),
        (each) => each.session === action.session,
        action.reason,
      );
    case "session-event":
      return sessionSays(afterEvent(state, action.session, action.event), action);
    default:
      return state;
  }
}

/**
 * Only the newest session's connection is shown.
 *
 * @param {State} state
 * @param {number} number
 * @param {Connection} connection
 * @returns {State}
 */
function connected(state, number, connection) {
  return state.session === number ? { ...state, connection } : state;
}

/**
 * @param {State} state
 * @param {number} number
 * @param {SessionEvent} event
 * @returns {State}
 */
function afterEvent(state, number, event) {
  if (event.type === "reconnecting") {
    return connected(state, number, "reconnecting");
  }
  return event.type === "resumed" ? connected(state, number, "connected") : state;
}
