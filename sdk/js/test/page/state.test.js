// @ts-check
/** What the page shows, from what is recorded and what the session reports. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { initialState, reduce } from "../../../../services/session_gateway/web/page/app/state.js";
import {
  MAX_SHOWN,
  MAX_TEXT,
} from "../../../../services/session_gateway/web/page/app/utterances.js";

/** @typedef {import("../../../../services/session_gateway/web/page/app/types.js").Action} Action */
/** @typedef {import("../../../../services/session_gateway/web/page/app/types.js").State} State */
/** @typedef {import("../../../../services/session_gateway/web/page/app/types.js").Side} Side */
/** @typedef {import("../../src/index.js").SessionEvent} SessionEvent */
/** @typedef {import("../../src/index.js").Result} Result */

const languages = { a: "en", b: "es" };

/**
 * @param {Side} side
 * @returns {{ src: string, tgt: string }}
 */
function by(side) {
  return side === "a" ? { src: "en", tgt: "es" } : { src: "es", tgt: "en" };
}

/**
 * @param {number} index
 * @param {Side} side
 * @param {Partial<Result>} [more]
 * @returns {Result}
 */
function result(index, side, more = {}) {
  return {
    type: "result",
    index,
    direction: by(side),
    kind: "TRANSLATED",
    texts: { source: `said ${index}`, repaired: "", translated: `dicho ${index}` },
    speech: new Uint8Array(),
    speechFormat: null,
    joined: [],
    lost: [],
    jobId: "job",
    nodeId: "node",
    attempts: 1,
    timings: { audioMs: 1, hangoverMs: 1, dispatchMs: 1, nodeMs: 1, deliverMs: 1, stages: [] },
    turnBroken: false,
    room: null,
    ...more,
  };
}

/**
 * @param {number} index
 * @param {Side} side
 * @returns {SessionEvent}
 */
function finalized(index, side) {
  return { type: "finalized", index, direction: by(side), reason: "IS_FINAL", audioMs: 900 };
}

/**
 * @param {SessionEvent} event
 * @param {number} [session]
 * @returns {Action}
 */
function says(event, session = 1) {
  return { type: "session-event", session, languages, event };
}

/**
 * @param {Side} side
 * @param {number} take
 * @param {number} [session]
 * @returns {Action[]}
 */
function presses(side, take, session = 1) {
  return [
    { type: "talk", talk: { side, phase: "recording" } },
    { type: "voice-start", session, take, side, languages },
  ];
}

/**
 * @param {number} take
 * @returns {Action[]}
 */
function releases(take) {
  return [
    { type: "voice-end", session: 1, take },
    { type: "talk", talk: null },
  ];
}

/**
 * @param {(Action | Action[])[]} actions
 * @returns {State}
 */
function after(...actions) {
  return actions.flat().reduce(reduce, initialState({ languages }));
}

/** @param {State} state */
function shown({ utterances }) {
  return utterances.map(({ index, side, state }) => `${index} ${side} ${state}`);
}

describe("an utterance", () => {
  test("is shown as soon as somebody speaks, and becomes what the scheduler says", () => {
    const speaking = after(presses("a", 1));
    assert.deepEqual(shown(speaking), ["0 a speaking"]);
    const waiting = [...releases(1)].reduce(reduce, speaking);
    assert.deepEqual(shown(waiting), ["0 a waiting"]);
    const done = [says(finalized(0, "a")), says(result(0, "a"))].reduce(reduce, waiting);
    assert.deepEqual(shown(done), ["0 a done"]);
    assert.equal(done.utterances[0]?.translated, "dicho 0");
    assert.equal(done.utterances[0]?.key, speaking.utterances[0]?.key);
  });

  test("that is cut in the middle of speech is followed by another one", () => {
    const cut = after(presses("a", 1), says(finalized(0, "a")));
    assert.deepEqual(shown(cut), ["0 a waiting", "1 a speaking"]);
    const done = [...releases(1), says(finalized(1, "a")), says(result(0, "a"))].reduce(
      reduce,
      cut,
    );
    assert.deepEqual(shown(done), ["0 a done", "1 a waiting"]);
  });

  test("that was none disappears when the scheduler has everything", () => {
    const cut = after(presses("a", 1), says(finalized(0, "a")), releases(1));
    assert.deepEqual(shown(cut), ["0 a waiting", "1 a waiting"]);
    assert.deepEqual(shown(reduce(cut, { type: "take-settled", take: 1 })), ["0 a waiting"]);
  });

  test("of a tap that was too short disappears", () => {
    const dropped = after(presses("b", 1), releases(1), { type: "take-dropped", take: 1 });
    assert.deepEqual(shown(dropped), []);
  });

  test("belongs to the one who spoke it, even if both speak before anything arrives", () => {
    const state = after(
      [...presses("a", 1), ...releases(1), ...presses("b", 2), ...releases(2)],
      [says(finalized(0, "a")), says(finalized(1, "b")), says(result(0, "a"))],
    );
    assert.deepEqual(shown(state), ["0 a done", "1 b waiting"]);
  });

  test("that the page did not record is shown as well", () => {
    assert.deepEqual(shown(after(says(result(0, "b")))), ["0 b done"]);
  });

  test("keeps its result if anything comes late", () => {
    const state = after(says(result(0, "a")), says(finalized(0, "a")), [
      says({ type: "partial", index: 0, direction: by("a"), texts: result(9, "a").texts }),
    ]);
    assert.deepEqual(shown(state), ["0 a done"]);
    assert.equal(state.utterances[0]?.source, "said 0");
  });

  test("that goes on is held, then joined or lost", () => {
    const held = after(says(result(0, "a", { kind: "HELD" })));
    assert.deepEqual(shown(held), ["0 a held"]);
    const joined = reduce(held, says(result(1, "a", { joined: [0] })));
    assert.deepEqual(shown(joined), ["0 a held", "1 a done"]);
    assert.equal(joined.utterances[0]?.joined, true);
    const lost = reduce(held, says(result(1, "a", { lost: [0] })));
    assert.deepEqual(shown(lost), ["0 a missing", "1 a done"]);
    assert.equal(lost.utterances[0]?.reason, "HELD_AUDIO_LOST");
  });

  test("without speech or without a result says so", () => {
    const state = after(says(result(0, "a", { kind: "NO_SPEECH" })), [
      says({
        type: "missing",
        index: 1,
        direction: by("b"),
        reason: "JOB_TIMEOUT",
        message: "",
        lost: [],
      }),
    ]);
    assert.deepEqual(shown(state), ["0 a no-speech", "1 b missing"]);
    assert.equal(state.utterances[1]?.reason, "JOB_TIMEOUT");
  });
});

describe("a take that fails", () => {
  /** @type {Action} */
  const fails = { type: "take-failed", take: 1, reason: "NOT_SENT" };

  test("does not hide what the same person says later", () => {
    const failed = after(presses("a", 1), releases(1), fails);
    const speaking = presses("a", 2).reduce(reduce, failed);
    assert.deepEqual(shown(speaking), ["0 a missing", "0 a speaking"]);
    const said = [...releases(2), says(finalized(0, "a")), says(result(0, "a"))].reduce(
      reduce,
      speaking,
    );
    const settled = reduce(said, { type: "take-settled", take: 2 });
    assert.deepEqual(shown(settled), ["0 a missing", "0 a done"]);
    assert.equal(settled.utterances[1]?.translated, "dicho 0");
    assert.equal(settled.utterances[1]?.key, speaking.utterances[1]?.key);
    assert.deepEqual(
      settled.utterances.map(({ known }) => known),
      [false, true],
    );
    const next = [...presses("a", 3), ...releases(3), says(result(1, "a"))].reduce(reduce, settled);
    assert.deepEqual(shown(next), ["0 a missing", "0 a done", "1 a done"]);
  });

  test("has the result of what was sent of it on a line of its own", () => {
    const failed = after(presses("a", 1), releases(1), fails);
    const part = reduce(failed, says(result(0, "a")));
    assert.deepEqual(shown(part), ["0 a missing", "0 a done"]);
    const next = [...presses("b", 2), ...releases(2), says(result(1, "b"))].reduce(reduce, part);
    assert.deepEqual(shown(next), ["0 a missing", "0 a done", "1 b done"]);
  });

  test("loses no result if that of a part arrives during the next take", () => {
    const speaking = after(presses("a", 1), releases(1), fails, presses("a", 2));
    const state = [
      says(finalized(0, "a")),
      ...releases(2),
      ...[says(result(0, "a")), says(finalized(1, "a")), says(result(1, "a"))],
      /** @type {Action} */ ({ type: "take-settled", take: 2 }),
    ].reduce(reduce, speaking);
    assert.deepEqual(shown(state), ["0 a missing", "0 a done", "1 a done"]);
  });
});

describe("a session", () => {
  test("that is lost leaves nothing waiting", () => {
    const state = after(
      { type: "session-opening", session: 1 },
      { type: "session-opened", session: 1, id: "s" },
      [...presses("a", 1), says(finalized(0, "a"))],
      { type: "session-lost", session: 1, reason: "SESSION_LOST" },
    );
    assert.equal(state.connection, "lost");
    assert.deepEqual(shown(state), ["0 a missing", "1 a missing"]);
  });

  test("that could not be opened makes what was said missing", () => {
    const state = after(presses("a", 1), releases(1), [
      { type: "take-failed", take: 1, reason: "NOT_SENT" },
    ]);
    assert.deepEqual(shown(state), ["0 a missing"]);
    assert.deepEqual(shown(reduce(state, { type: "take-settled", take: 1 })), ["0 a missing"]);
  });

  test("counts its own utterances, and the old one's results still arrive", () => {
    const state = after(
      [...presses("a", 1), ...releases(1), says(finalized(0, "a"))],
      { type: "session-opening", session: 2 },
      [...presses("a", 2, 2), ...releases(2), says(finalized(0, "a"), 2)],
      [says(result(0, "a"), 1), { type: "session-closed", session: 1 }],
    );
    assert.deepEqual(shown(state), ["0 a done", "0 a waiting"]);
    assert.equal(state.connection, "connecting");
  });

  test("that is open ends the problem of the one before", () => {
    const state = after(
      { type: "problem", problem: { reason: "SESSION_NOT_FOUND", detail: "" } },
      { type: "session-opening", session: 2 },
      { type: "session-opened", session: 2, id: "s" },
    );
    assert.equal(state.problem, null);
    assert.equal(state.connection, "connected");
  });

  test("shows that it reconnects, and that it is back", () => {
    const away = after(
      { type: "session-opening", session: 1 },
      { type: "session-opened", session: 1, id: "s" },
      says({ type: "reconnecting", why: "" }),
    );
    assert.equal(away.connection, "reconnecting");
    const back = reduce(away, says({ type: "resumed", awayMs: 5, chunksAgain: 0 }));
    assert.equal(back.connection, "connected");
    const old = reduce(
      reduce(back, { type: "session-opening", session: 2 }),
      says({ type: "reconnecting", why: "" }, 1),
    );
    assert.equal(old.connection, "connecting");
  });
});

describe("a hint", () => {
  test("that the other person speaks ends when they have finished", () => {
    const speaking = after(presses("a", 1), { type: "hint", side: "b", hint: "hint.other" });
    assert.deepEqual(speaking.hints, { a: "", b: "hint.other" });
    assert.deepEqual(releases(1).reduce(reduce, speaking).hints, { a: "", b: "" });
  });

  test("for the one who spoke stays until somebody speaks again", () => {
    const short = after(presses("a", 1), { type: "hint", side: "a", hint: "hint.short" });
    const released = releases(1).reduce(reduce, short);
    assert.deepEqual(released.hints, { a: "hint.short", b: "" });
    assert.deepEqual(presses("b", 2).reduce(reduce, released).hints, { a: "", b: "" });
  });
});

describe("limits", () => {
  test("only the last utterances are shown, and the rest is counted", () => {
    const events = Array.from({ length: MAX_SHOWN + 7 }, (_, index) => says(result(index, "a")));
    const state = after(...events);
    assert.equal(state.utterances.length, MAX_SHOWN);
    assert.equal(state.forgotten, 7);
    assert.equal(state.utterances.at(-1)?.index, MAX_SHOWN + 6);
    const next = presses("a", 1).reduce(reduce, state);
    assert.equal(next.utterances.at(-1)?.index, MAX_SHOWN + 7);
  });

  test("texts of nodes are cut", () => {
    const texts = { source: "x".repeat(60_000), repaired: "", translated: "y".repeat(60_000) };
    const [said] = after(says(result(0, "a", { texts }))).utterances;
    assert.equal(said?.source.length, MAX_TEXT + 1);
    assert.equal(said?.translated.length, MAX_TEXT + 1);
  });
});
