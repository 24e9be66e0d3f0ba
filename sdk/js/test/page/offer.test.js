// @ts-check
/** Which languages can be chosen. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  bothSpeak,
  choices,
  choose,
  offered,
  settle,
} from "../../../../services/session_gateway/web/page/app/offer.js";

/**
 * @param {string} src
 * @param {string} tgt
 * @param {{ speech?: boolean, room?: boolean }} [more]
 */
function direction(src, tgt, { speech = true, room = true } = {}) {
  return { src, tgt, speech, room };
}

const ALL = ["en", "es", "zh"].flatMap((src) =>
  ["en", "es", "zh"].filter((tgt) => tgt !== src).map((tgt) => direction(src, tgt)),
);

test("the first languages are the browser's and one that goes with it", () => {
  assert.deepEqual(settle({ a: "", b: "" }, ALL, "zh"), { a: "zh", b: "en" });
  assert.deepEqual(settle({ a: "", b: "" }, ALL, "de"), { a: "en", b: "es" });
  assert.deepEqual(settle({ a: "", b: "" }, [], "en"), { a: "", b: "" });
});

test("what was chosen stays, even if nobody offers it at the moment", () => {
  assert.deepEqual(settle({ a: "fr", b: "en" }, ALL, "en"), { a: "fr", b: "en" });
  const [first] = choices({ a: "fr", b: "en" }, "a", ALL);
  assert.deepEqual(first, { code: "fr", busy: false, isOffered: false });
});

test("choosing the other half's language exchanges the two", () => {
  assert.deepEqual(choose({ a: "en", b: "es" }, "a", "es", ALL), { a: "es", b: "en" });
  assert.deepEqual(choose({ a: "en", b: "es" }, "b", "en", ALL), { a: "es", b: "en" });
});

test("a language that the other one does not go with changes that, too", () => {
  const directions = [
    direction("en", "es"),
    direction("es", "en"),
    direction("fr", "de"),
    direction("de", "fr"),
  ];
  assert.deepEqual(choose({ a: "en", b: "es" }, "a", "fr", directions), { a: "fr", b: "de" });
  assert.deepEqual(choose({ a: "en", b: "es" }, "b", "fr", directions), { a: "de", b: "fr" });
});

test("two ways are better than one", () => {
  const directions = [direction("en", "de"), direction("en", "es"), direction("es", "en")];
  assert.deepEqual(settle({ a: "", b: "" }, directions, "en"), { a: "en", b: "es" });
});

test("a direction without room is busy, one that no node offers is not offered", () => {
  const directions = [direction("en", "es", { room: false }), direction("es", "en")];
  assert.deepEqual(choices({ a: "en", b: "es" }, "a", directions), [
    { code: "en", busy: true, isOffered: true },
    { code: "es", busy: false, isOffered: true },
  ]);
});

test("nodes that translate to any language count, and those that speak come first", () => {
  const directions = [
    direction("en", "*", { speech: false }),
    direction("en", "es", { room: false }),
    direction("es", "*", { speech: false }),
  ];
  assert.equal(offered(directions, "en", "es")?.speech, true);
  assert.equal(offered(directions, "EN", "zh")?.speech, false);
  assert.equal(offered(directions, "zh", "en"), undefined);
  assert.equal(bothSpeak({ a: "en", b: "es" }, directions), false);
  assert.equal(bothSpeak({ a: "en", b: "es" }, ALL), true);
  assert.equal(bothSpeak({ a: "en", b: "es" }, []), false);
});
