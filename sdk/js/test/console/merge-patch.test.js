// @ts-check
/** Changes of documents. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { mergePatch } from "../../../../services/console/page/app/merge-patch.js";

/** The examples of RFC 7396: document, patch, result. @type {[unknown, unknown, unknown][]} */
const EXAMPLES = [
  [{ a: "b" }, { a: "c" }, { a: "c" }],
  [{ a: "b" }, { b: "c" }, { a: "b", b: "c" }],
  [{ a: "b" }, { a: null }, {}],
  [{ a: "b", b: "c" }, { a: null }, { b: "c" }],
  [{ a: ["b"] }, { a: "c" }, { a: "c" }],
  [{ a: "c" }, { a: ["b"] }, { a: ["b"] }],
  [{ a: { b: "c" } }, { a: { b: "d", c: null } }, { a: { b: "d" } }],
  [{ a: [{ b: "c" }] }, { a: [1] }, { a: [1] }],
  [
    ["a", "b"],
    ["c", "d"],
    ["c", "d"],
  ],
  [{ a: "b" }, ["c"], ["c"]],
  [{ a: "foo" }, null, null],
  [{ a: "foo" }, "bar", "bar"],
  [{ e: null }, { a: 1 }, { e: null, a: 1 }],
  [[1, 2], { a: "b", c: null }, { a: "b" }],
  [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
];

test("patches do what RFC 7396 says", () => {
  for (const [target, patch, result] of EXAMPLES) {
    assert.deepEqual(mergePatch(target, patch), result);
  }
});

test("parts that do not change stay the same objects, and the old document is left alone", () => {
  const before = { rows: { a: { n: 1 }, b: { n: 2 } }, order: ["a", "b"] };
  const after = /** @type {typeof before} */ (mergePatch(before, { rows: { b: { n: 3 } } }));
  assert.equal(after.rows.a, before.rows.a);
  assert.equal(after.order, before.order);
  assert.notEqual(after.rows, before.rows);
  assert.equal(before.rows.b.n, 2);
});

test("a patch that changes nothing gives the same document", () => {
  const before = { rows: { a: { n: 1 } } };
  assert.equal(mergePatch(before, { rows: { a: { n: 1 }, gone: null } }), before);
});

test("a row may have the id __proto__", () => {
  const patch = /** @type {unknown} */ (JSON.parse('{"rows": {"__proto__": {"n": 1}}}'));
  const after = /** @type {{ rows: object }} */ (mergePatch({ rows: { a: {} } }, patch));
  assert.deepEqual(Object.keys(after.rows), ["a", "__proto__"]);
  assert.equal(Object.getPrototypeOf(after.rows), Object.prototype);
  assert.equal(/** @type {Record<string, unknown>} */ ({})["n"], undefined);
});
