// @ts-check
/** The room page's state, and what each action makes of it. No I/O, no clock. */

import { firstChoice, listenable, speakable } from "./languages.js";
import { hears, sessionSays } from "./lines.js";

/** @import { Action, Attendance, Connection, RoomEvent, State } from "./types.js" */

/**
 * @param {Partial<State>} [chosen] what the user chose earlier.
 * @returns {State}
 */
export function initialState(chosen = {}) {
  return {
    interface: "en",
    view: "start",
    name: "",
    language: "",
    sound: false,
    offer: { status: "loading", directions: [] },
    handsFree: false,
    token: "",
    problem: null,
    ...outside(),
    ...chosen,
  };
}

/** What is known of a room, before it is entered. */
function outside() {
  return {
    invitation: null,
    refusal: "",
    room: null,
    speaks: false,
    busy: false,
    talk: null,
    hints: { a: "", b: "" },
    listening: /** @type {Connection} */ ("idle"),
    speaking: /** @type {Connection} */ ("idle"),
    sessionId: "",
    attendance: null,
    lines: [],
    forgotten: 0,
    pending: [],
    receipts: {},
    playing: "",
    links: { listener: "", speaker: "" },
    panel: false,
    closing: false,
    closed: false,
  };
}

/**
 * The languages that can be chosen now, in the start view and in the lobby to speak or to listen, or
 * inside.
 *
 * @param {State} state
 * @param {boolean} speaks
 */
export function choicesOf({ offer, attendance, room }, speaks) {
  const allowed = room?.allowedLanguages ?? [];
  return speaks
    ? speakable(offer.directions, allowed)
    : listenable(offer.directions, attendance, allowed);
}

/**
 * A language that was chosen stays, even if nobody offers it at the moment.
 *
 * @param {State} state
 * @returns {State}
 */
function settle(state) {
  if (state.language !== "") {
    return state;
  }
  const codes = choicesOf(state, state.view === "start");
  return { ...state, language: firstChoice(codes, [state.interface]) };
}

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State}
 */
export function reduce(state, action) {
  switch (action.type) {
    case "offer":
      return settle({ ...state, offer: { status: "known", directions: action.directions } });
    case "offer-failed":
      return { ...state, offer: { ...state.offer, status: "failed" } };
    case "interface":
      return { ...state, interface: action.interface };
    case "token":
      return { ...state, token: action.token };
    case "problem":
      return { ...state, problem: action.problem, busy: false };
    case "named":
      return { ...state, name: action.name.slice(0, 64) };
    case "choose":
      return { ...state, language: action.language };
    case "sound":
      return { ...state, sound: action.on };
    case "busy":
      return { ...state, busy: action.on, problem: null };
    default:
      return room(state, action);
  }
}

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State}
 */
function room(state, action) {
  switch (action.type) {
    case "invited":
      return invited(state, action.invitation);
    case "described": {
      const { name, allowedLanguages, speak, listeners, languages, speakers } = action.room;
      const attendance = { listeners, languages, speakers };
      return settle({ ...state, room: { name, allowedLanguages, speak }, attendance, refusal: "" });
    }
    case "refused":
      return { ...state, refusal: action.reason, busy: false };
    case "entered":
      return {
        ...state,
        view: "inside",
        speaks: action.speaks,
        busy: false,
        problem: null,
        panel: state.invitation?.role === "host" && state.lines.length === 0,
      };
    case "links":
      return { ...state, links: action.links };
    case "panel":
      return { ...state, panel: action.open };
    case "closing":
      return { ...state, closing: action.on };
    default:
      return inside(state, action);
  }
}

/**
 * @param {State} state
 * @param {State["invitation"]} invitation
 * @returns {State}
 */
function invited(state, invitation) {
  const view = invitation === null ? "start" : "lobby";
  const refusal = invitation?.token === "" ? "NO_TOKEN" : "";
  return { ...state, ...outside(), problem: null, invitation, view, refusal };
}

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State}
 */
function inside(state, action) {
  switch (action.type) {
    case "listening":
      return { ...state, listening: action.connection };
    case "speaking":
      return { ...state, speaking: action.connection, sessionId: action.sessionId };
    case "room-event":
      return roomSays(state, action.event);
    case "session-event":
      return sessionSays({ ...state, speaking: after(state.speaking, action.event) }, action.event);
    case "hands-free":
      return { ...state, handsFree: action.on, hints: { a: "", b: "" } };
    case "talk":
      return {
        ...state,
        talk: action.talk,
        hints: action.talk === null ? state.hints : { a: "", b: "" },
        panel: state.panel && action.talk === null,
      };
    case "hint":
      return { ...state, hints: { ...state.hints, [action.side]: action.hint } };
    case "playing":
      return { ...state, playing: action.key };
    case "speech":
      return {
        ...state,
        lines: state.lines.map((each) =>
          each.key === action.key ? { ...each, hasSpeech: action.has } : each,
        ),
      };
    default:
      return state;
  }
}

/**
 * @param {State} state
 * @param {RoomEvent} event
 * @returns {State}
 */
function roomSays(state, event) {
  const next = { ...state, listening: after(state.listening, event) };
  switch (event.type) {
    case "said":
    case "not-said":
      return hears(next, event);
    case "status": {
      const { listeners, languages, speakers } = event;
      return { ...next, attendance: { listeners, languages, speakers } };
    }
    case "changed":
      return state.speaks ? next : { ...next, language: event.listening.language };
    case "closed":
      return { ...next, closed: true, closing: false, listening: "idle", panel: false };
    default:
      return next;
  }
}

/**
 * @param {Connection} connection
 * @param {{ readonly type: string }} event
 * @returns {Connection}
 */
function after(connection, { type }) {
  if (type === "reconnecting") {
    return "reconnecting";
  }
  return type === "resumed" || type === "rejoined" ? "connected" : connection;
}

/**
 * Who listens, without the speaker here, who only reads along.
 *
 * @param {State} state
 * @returns {Attendance}
 */
export function audienceOf({ attendance, speaks, language }) {
  const { listeners = 0, languages = [], speakers = [] } = attendance ?? {};
  if (!speaks) {
    return { listeners, languages, speakers };
  }
  return {
    listeners: Math.max(0, listeners - 1),
    languages: languages
      .map((each) =>
        each.language.toLowerCase() === language.toLowerCase()
          ? { ...each, listeners: each.listeners - 1 }
          : each,
      )
      .filter((each) => each.listeners > 0),
    speakers,
  };
}

/**
 * The worse of the connections that this tab has.
 *
 * @param {State} state
 * @returns {Connection}
 */
export function connectionOf({ listening, speaking, speaks }) {
  const both = speaks ? [listening, speaking] : [listening];
  const order = /** @type {const} */ (["lost", "reconnecting", "connecting", "connected"]);
  return order.find((each) => both.includes(each)) ?? "idle";
}
