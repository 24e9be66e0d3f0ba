// @ts-check
/** Addresses of views and of their documents. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  address,
  changed,
  documentOf,
  nextOf,
  pageOf,
  parse,
} from "../../../../services/console/page/app/router.js";

test("every view has an address, and the address leads back to it", () => {
  const views = /** @type {const} */ ([
    "overview",
    "nodes",
    "jobs",
    "sessions",
    "rooms",
    "instances",
    "sign-in",
  ]);
  for (const view of views) {
    assert.deepEqual(parse(address(view), ""), { view, id: "", query: {} });
  }
  for (const view of /** @type {const} */ (["node", "job", "session", "room"])) {
    const id = "a b/ü?#%";
    assert.deepEqual(parse(address(view, id), ""), { view, id, query: {} });
  }
});

test("an address that leads nowhere is an unknown view", () => {
  for (const path of ["/nope", "/nodes/a/b", "/nodes/%E0%A4%A", "/jobs//"]) {
    assert.equal(parse(path, "").view, "unknown", path);
  }
  assert.equal(parse("/nodes/", "").view, "nodes");
});

test("parameters that a view does not know, or that are empty, are dropped", () => {
  const { query } = parse("/nodes", "?search=gpu&health=&nope=1&page=3");
  assert.deepEqual(query, { search: "gpu", page: "3" });
});

test("another filter starts at the first page, and another page keeps the filters", () => {
  const route = parse("/nodes", "?search=gpu&page=3");
  assert.equal(changed(route, { health: "ready" }), "/nodes?search=gpu&health=ready");
  assert.equal(changed(route, { page: 4 }), "/nodes?search=gpu&page=4");
  assert.equal(changed(route, { search: undefined }), "/nodes");
});

test("the document of a list has the filters and the offset of the page", () => {
  assert.equal(
    documentOf(parse("/jobs", "?state=failed&sort=took&desc=1&page=3")),
    "jobs?state=failed&sort=took&desc=1&offset=100",
  );
  assert.equal(documentOf(parse("/nodes/gpu%2F1", "")), "nodes/gpu%2F1");
  assert.equal(documentOf(parse("/sessions/s1", "?page=2")), "sessions/s1?offset=50");
  assert.equal(
    documentOf(parse("/rooms", "?language=es&sort=lag&desc=1&state=x")),
    "rooms?language=es&sort=lag&desc=1",
  );
  assert.equal(documentOf(parse("/rooms/r1", "?page=2")), "rooms/r1?offset=50");
});

test("filters that only the page uses are not sent", () => {
  assert.equal(documentOf(parse("/", "?kind=text&src=en")), "overview?kind=text");
  assert.equal(documentOf(parse("/instances", "?search=x&differences=1")), "instances");
  assert.equal(documentOf(parse("/sign-in", "")), "");
});

test("a page that is no number is the first one", () => {
  for (const page of ["0", "-1", "x", "1.5", "1e99"]) {
    assert.equal(pageOf({ page }), 1);
  }
});

test("after signing in one stays on this site", () => {
  assert.equal(nextOf({ next: "/nodes?health=ready" }), "/nodes?health=ready");
  for (const next of [
    "https://evil.example",
    "//evil.example",
    "/\\evil.example",
    "x",
    "/sign-in",
  ]) {
    assert.equal(nextOf({ next }), "/", next);
  }
});
