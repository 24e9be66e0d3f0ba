// @ts-check
/**
 * What was said, from what the page records and what the session reports. No I/O, no clock.
 *
 * An utterance is shown as soon as somebody speaks, before the scheduler has given it an index: until
 * then it has the index that it will get, if nothing else happens. The scheduler may cut one long
 * speech into several, so the number of utterances is not known before their events arrive.
 */

/** @import { Action, Languages, SessionEvent, Side, State, Utterance } from "./types.js" */

/** How many are shown. The rest is counted. */
export const MAX_SHOWN = 200;
/** Texts come from nodes, which may be anybody's. */
export const MAX_TEXT = 2000;

/**
 * @param {string} text
 * @returns {string}
 */
export function bounded(text) {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

/**
 * @param {Languages} languages
 * @param {{ src: string }} direction
 * @returns {Side}
 */
export function sideOf(languages, direction) {
  return direction.src.toLowerCase() === languages.b.toLowerCase() ? "b" : "a";
}

/**
 * @param {{ session: number, take: number, side: Side, languages: Languages }} spoken
 * @param {readonly Utterance[]} before
 * @returns {Utterance}
 */
function begun({ session, take, side, languages }, before) {
  const serial = 1 + Math.max(0, ...before.map((each) => Number(each.key.slice(1))));
  return {
    key: `u${serial}`,
    session,
    take,
    index: 0,
    known: false,
    side,
    src: side === "a" ? languages.a : languages.b,
    tgt: side === "a" ? languages.b : languages.a,
    state: "speaking",
    source: "",
    translated: "",
    joined: false,
    reason: "",
    hasSpeech: false,
    nodeId: "",
    jobId: "",
    attempts: 0,
    timings: null,
  };
}

/** @param {Utterance} utterance */
function isOpen({ state }) {
  return state === "speaking" || state === "waiting";
}

/**
 * Whether the scheduler will probably mention it. What could not be sent has no index to come.
 *
 * @param {Utterance} utterance
 */
function isExpected(utterance) {
  return !utterance.known && isOpen(utterance);
}

/**
 * Gives those that the scheduler is expected to mention the next indexes, and bounds the list.
 *
 * @param {State} state
 * @param {readonly Utterance[]} utterances
 * @returns {State}
 */
function keep(state, utterances) {
  const excess = Math.max(0, utterances.length - MAX_SHOWN);
  /** @type {Map<number, number>} */
  const next = new Map();
  for (const { known, session, index } of utterances) {
    if (known) {
      next.set(session, Math.max(next.get(session) ?? 0, index + 1));
    }
  }
  const numbered = utterances.slice(excess).map((each) => {
    if (!isExpected(each)) {
      return each;
    }
    const index = next.get(each.session) ?? 0;
    next.set(each.session, index + 1);
    return each.index === index ? each : { ...each, index };
  });
  return { ...state, utterances: numbered, forgotten: state.forgotten + excess };
}

/**
 * @param {State} state
 * @param {(utterance: Utterance) => boolean} which
 * @param {Partial<Utterance>} change
 * @returns {State}
 */
function changed(state, which, change) {
  return keep(
    state,
    state.utterances.map((each) => (which(each) ? { ...each, ...change } : each)),
  );
}

/**
 * @param {State} state
 * @param {{ session: number, take: number, side: Side, languages: Languages }} action
 * @returns {State}
 */
export function voiceStarts(state, action) {
  const isThere = state.utterances.some(
    (each) => each.take === action.take && each.state === "speaking",
  );
  return isThere ? state : keep(state, [...state.utterances, begun(action, state.utterances)]);
}

/**
 * @param {State} state
 * @param {number} take
 * @returns {State}
 */
export function voiceEnds(state, take) {
  return changed(state, (each) => each.take === take && each.state === "speaking", {
    state: "waiting",
  });
}

/**
 * The scheduler knows everything that was said in a take: what it has not mentioned was nothing.
 *
 * @param {State} state
 * @param {number} take
 * @returns {State}
 */
export function takeSettled(state, take) {
  return keep(
    state,
    state.utterances.filter((each) => each.take !== take || each.known || each.state === "missing"),
  );
}

/**
 * What was said could not be sent, or its result cannot arrive any more.
 *
 * @param {State} state
 * @param {(utterance: Utterance) => boolean} which
 * @param {string} reason
 * @returns {State}
 */
export function nowMissing(state, which, reason) {
  return changed(state, (each) => isOpen(each) && which(each), { state: "missing", reason });
}

/**
 * @param {State} state
 * @param {Extract<Action, { type: "session-event" }>} action
 * @returns {State}
 */
export function sessionSays(state, { session, languages, event }) {
  if (!("index" in event)) {
    return state;
  }
  const { index } = event;
  const side = sideOf(languages, event.direction);
  const known = withIndex(state, { session, languages, side, index });
  const at = known.findIndex(
    (each) => each.known && each.session === session && each.index === index,
  );
  const utterance = known[at];
  if (utterance === undefined || isSettled(utterance)) {
    return state;
  }
  const said = known.with(at, { ...utterance, ...changeBy(event, utterance) });
  const joined = "joined" in event ? event.joined : [];
  const lost = "lost" in event ? event.lost : [];
  return keep(
    state,
    said.map((each) => {
      if (each.session !== session || each.state !== "held") {
        return each;
      }
      if (lost.includes(each.index)) {
        return { ...each, state: "missing", reason: "HELD_AUDIO_LOST" };
      }
      return joined.includes(each.index) ? { ...each, joined: true } : each;
    }),
  );
}

/** @param {Utterance} utterance */
function isSettled({ state }) {
  return state === "done" || state === "no-speech" || state === "missing";
}

/**
 * The utterances with one that has this index: the oldest of this person that still expects one, or
 * else a new one. A take that failed expects none. A part of it may have been sent: that result is
 * shown on another line.
 *
 * @param {State} state
 * @param {{ session: number, languages: Languages, side: Side, index: number }} mentioned
 * @returns {readonly Utterance[]}
 */
function withIndex({ utterances, talk }, { session, languages, side, index }) {
  const isOf = (/** @type {Utterance} */ each) => each.session === session;
  if (utterances.some((each) => isOf(each) && each.known && each.index === index)) {
    return utterances;
  }
  const at = utterances.findIndex((each) => isOf(each) && isExpected(each) && each.side === side);
  const pending = utterances[at];
  if (pending === undefined) {
    const take = utterances.findLast(isOf)?.take ?? 0;
    const added = begun({ session, take, side, languages }, utterances);
    return [...utterances, { ...added, index, known: true, state: "waiting" }];
  }
  const found = utterances.with(at, { ...pending, index, known: true });
  // Cut in the middle of speech: the person goes on.
  const goesOn = pending.state === "speaking" && talk !== null && talk.side === side;
  return goesOn ? [...found, begun({ ...pending, languages }, utterances)] : found;
}

/**
 * @param {SessionEvent & { index: number }} event
 * @param {Utterance} before
 * @returns {Partial<Utterance>}
 */
function changeBy(event, before) {
  const { source, translated } = before;
  switch (event.type) {
    case "partial":
      return {
        state: "waiting",
        source: bounded(event.texts.source) || source,
        translated: bounded(event.texts.translated) || translated,
      };
    case "accepted":
      return { state: "waiting", nodeId: event.nodeId, attempts: event.attempt };
    case "result":
      return {
        state: stateOf(event.kind),
        source: bounded(event.texts.source) || (event.kind === "HELD" ? source : ""),
        translated: bounded(event.texts.translated),
        nodeId: event.nodeId,
        jobId: event.jobId,
        attempts: event.attempts,
        timings: event.timings,
      };
    case "missing":
      return { state: "missing", reason: event.reason };
    default:
      return { state: "waiting" };
  }
}

/**
 * @param {import("../../../../../sdk/js/src/index.js").ResultKind} kind
 * @returns {Utterance["state"]}
 */
function stateOf(kind) {
  switch (kind) {
    case "HELD":
      return "held";
    case "NO_SPEECH":
      return "no-speech";
    default:
      return "done";
  }
}
