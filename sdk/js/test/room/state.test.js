// @ts-check
/** The room page's state: who comes, what is said, and what is shown of it. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { MAX_SHOWN } from "../../../../services/session_gateway/web/page/app/utterances.js";
import {
  audienceOf,
  connectionOf,
  initialState,
  reduce,
} from "../../../../services/session_gateway/web/page/room/state.js";
import { listened, notSaid, room, said, speaker } from "./page.js";

/** @import { Action, RoomEvent, State } from "../../../../services/session_gateway/web/page/room/types.js" */

const HOST = /** @type {const} */ ({ roomId: "r-1", token: "room.x", role: "host" });

/**
 * @param {State} state
 * @param {Action[]} actions
 */
function after(state, ...actions) {
  return actions.reduce(reduce, state);
}

/** @param {RoomEvent[]} events */
function hear(...events) {
  return events.map((event) => /** @type {const} */ ({ type: "room-event", event }));
}

/** A host who has entered, and speaks English. */
function hosting() {
  return after(
    initialState({ language: "en", name: "Ana" }),
    { type: "invited", invitation: HOST },
    { type: "described", room: room() },
    { type: "listening", connection: "connected" },
    { type: "speaking", connection: "connected", sessionId: "s-1" },
    { type: "entered", speaks: true },
  );
}

/**
 * @param {number} index
 * @returns {Action}
 */
function cut(index) {
  const direction = { src: "en", tgt: "" };
  const event = /** @type {const} */ ({
    type: "finalized",
    index,
    direction,
    reason: "",
    audioMs: 9,
  });
  return { type: "session-event", event };
}

/**
 * @param {number} index
 * @param {import("../../src/index.js").RoomReceipt} receipt
 * @returns {Action}
 */
function receipt(index, receipt) {
  const nothing = { source: "", repaired: "", translated: "" };
  const timings = { audioMs: 0, hangoverMs: 0, dispatchMs: 0, nodeMs: 0, deliverMs: 0, stages: [] };
  return {
    type: "session-event",
    event: {
      type: "result",
      index,
      direction: { src: "en", tgt: "" },
      kind: "UNSPECIFIED",
      texts: nothing,
      speech: new Uint8Array(),
      speechFormat: null,
      joined: [],
      lost: [],
      jobId: "",
      nodeId: "",
      attempts: 0,
      timings,
      turnBroken: false,
      room: receipt,
    },
  };
}

describe("coming", () => {
  test("without a link one starts, with one one waits in the lobby", () => {
    assert.equal(initialState().view, "start");
    assert.equal(after(initialState(), { type: "invited", invitation: HOST }).view, "lobby");
  });

  test("a link without a token is refused", () => {
    const invitation = { ...HOST, token: "" };
    assert.equal(after(initialState(), { type: "invited", invitation }).refusal, "NO_TOKEN");
  });

  test("a language is chosen as soon as there is one, and stays", () => {
    const state = after(initialState({ interface: "es" }), { type: "invited", invitation: HOST });
    const directions = ["en", "es"].map((src) => ({ src, tgt: "*", speech: true, room: true }));
    const offered = after(state, { type: "offer", directions });
    assert.equal(offered.language, "es");
    const chosen = after(
      offered,
      { type: "choose", language: "en" },
      { type: "offer", directions: [] },
    );
    assert.equal(chosen.language, "en");
  });

  test("what is known of a room is forgotten with it", () => {
    const left = after(hosting(), ...hear(said(0)), { type: "invited", invitation: null });
    assert.deepEqual([left.view, left.lines, left.room, left.sessionId], ["start", [], null, ""]);
    assert.deepEqual([left.name, left.language], ["Ana", "en"]);
  });
});

describe("what is said", () => {
  test("lines come in order, each once", () => {
    const state = after(hosting(), ...hear(said(0), notSaid(1), said(2), said(2)));
    assert.deepEqual(
      state.lines.map(({ index, state: how }) => [index, how]),
      [
        [0, "said"],
        [1, "missing"],
        [2, "said"],
      ],
    );
  });

  test("the words of the speaker are shown below a translation, and not twice in the own language", () => {
    const own = { language: "en", text: "Hello." };
    const [translated, recognised] = after(hosting(), ...hear(said(0), said(1, own))).lines;
    assert.deepEqual([translated?.text, translated?.source], ["Hola.", "Hello."]);
    assert.deepEqual([recognised?.text, recognised?.source], ["Hello.", ""]);
  });

  test("what was held is marked when it is continued, or lost", () => {
    const held = { kind: /** @type {const} */ ("HELD"), text: "" };
    const state = after(
      hosting(),
      ...hear(said(0, held), said(1, held), said(2, { joined: [0], lost: [1] })),
    );
    assert.deepEqual(
      state.lines.map((line) => [line.state, line.joined, line.reason]),
      [
        ["held", true, ""],
        ["missing", false, "HELD_AUDIO_LOST"],
        ["said", false, ""],
      ],
    );
  });

  test("several that are missing are one line", () => {
    const [line] = after(hosting(), ...hear(notSaid(3, { untilIndex: 8 }))).lines;
    assert.equal(line?.count, 5);
  });

  test("only the newest lines are kept, and long texts are cut", () => {
    const many = Array.from({ length: MAX_SHOWN + 50 }, (_, at) => said(at));
    const state = after(hosting(), ...hear(...many, said(999, { text: "x".repeat(9000) })));
    assert.equal(state.lines.length, MAX_SHOWN);
    assert.equal(state.forgotten, 51);
    assert((state.lines.at(-1)?.text.length ?? 0) < 2100);
  });
});

describe("speaking", () => {
  test("what was said here waits until its caption comes", () => {
    const state = after(hosting(), cut(0), cut(1));
    assert.deepEqual(state.pending, [0, 1]);
    const heard = after(state, ...hear(said(7), said(8, { sessionId: "other" })));
    assert.deepEqual(heard.pending, [1]);
    assert.deepEqual(
      heard.lines.map(({ mine }) => mine),
      [true, false],
    );
  });

  test("a receipt says in which languages the room has it", () => {
    const missing = [{ language: "fr", reason: "JOB_TIMEOUT", message: "" }];
    const found = { roomIndex: 7, delivered: ["es"], missing };
    const state = after(hosting(), cut(0), receipt(0, found));
    assert.deepEqual(state.pending, []);
    assert.deepEqual(state.receipts[7], found);
  });

  test("receipts are bounded", () => {
    const state = after(
      hosting(),
      ...Array.from({ length: 500 }, (_, at) =>
        receipt(at, { roomIndex: at, delivered: [], missing: [] }),
      ),
    );
    assert.equal(Object.keys(state.receipts).length, MAX_SHOWN);
    assert(499 in state.receipts);
  });

  test("what has no place in the room is shown as missing", () => {
    const event = /** @type {const} */ ({
      type: "missing",
      index: 0,
      direction: { src: "en", tgt: "" },
      reason: "QUOTA_EXCEEDED",
      message: "",
      lost: [],
    });
    const state = after(hosting(), cut(0), { type: "session-event", event });
    assert.deepEqual([state.pending.length, state.lines[0]?.state], [0, "missing"]);
    assert.equal(state.lines[0]?.index, null);
  });

  test("the panel gives way when somebody talks", () => {
    const state = hosting();
    assert(state.panel);
    const talk = /** @type {const} */ ({ side: "a", phase: "recording" });
    assert(!after(state, { type: "talk", talk }).panel);
  });
});

describe("who is there", () => {
  const attendance = {
    listeners: 4,
    languages: [listened("es", 2), listened("en", 1), listened("fr", 1)],
    speakers: [speaker("en")],
  };

  test("the speaker here, who reads along, is not counted", () => {
    const audience = audienceOf(after(hosting(), ...hear({ type: "status", ...attendance })));
    assert.equal(audience.listeners, 3);
    assert.deepEqual(
      audience.languages.map(({ language, listeners }) => [language, listeners]),
      [
        ["es", 2],
        ["fr", 1],
      ],
    );
  });

  test("the worse of two connections is shown", () => {
    assert.equal(connectionOf(hosting()), "connected");
    const away = hear({ type: "reconnecting", why: "" });
    assert.equal(connectionOf(after(hosting(), ...away)), "reconnecting");
    const back = hear({ type: "rejoined", awayMs: 1, position: 0 });
    assert.equal(connectionOf(after(hosting(), ...away, ...back)), "connected");
    const lost = /** @type {const} */ ({ type: "speaking", connection: "lost", sessionId: "" });
    assert.equal(connectionOf(after(hosting(), lost)), "lost");
  });

  test("a closed room stays to be read", () => {
    const state = after(hosting(), ...hear(said(0), { type: "closed" }));
    assert(state.closed);
    assert.equal(state.lines.length, 1);
  });
});
