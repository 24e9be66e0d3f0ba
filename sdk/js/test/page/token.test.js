// @ts-check
/** When the page asks for a token, and where it finds one. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { initialState, reduce } from "../../../../services/session_gateway/web/page/app/state.js";
import { Store } from "../../../../services/session_gateway/web/page/app/store.js";
import { TokenKeeper } from "../../../../services/session_gateway/web/page/app/token.js";

/** The parts of a browser that it uses. */
const address = { hash: "", pathname: "/", search: "" };
Object.assign(globalThis, {
  location: address,
  history: {
    replaceState: () => {
      address.hash = "";
    },
  },
});

beforeEach(() => {
  address.hash = "";
});

test("a dialog that was closed stays closed until the user does something", () => {
  const store = new Store(initialState(), reduce);
  const token = new TokenKeeper(store);
  void token.ask();
  assert.equal(store.state.token, "needed");
  token.dismiss();
  void token.ask();
  assert.equal(store.state.token, "");
  token.remind();
  assert.equal(store.state.token, "needed");
});

test("nothing is asked if nobody needs a token", () => {
  const store = new Store(initialState(), reduce);
  new TokenKeeper(store).remind();
  assert.equal(store.state.token, "");
});

test("all who wait get the token of the address, which is removed from it", async () => {
  const store = new Store(initialState(), reduce);
  const token = new TokenKeeper(store);
  const waiting = [token.ask(), token.ask()];
  assert.equal(token.readAddress(), false);
  address.hash = "#token=abc.def";
  assert.equal(token.readAddress(), true);
  assert.deepEqual(await Promise.all(waiting), ["abc.def", "abc.def"]);
  assert.deepEqual([store.state.token, address.hash], ["", ""]);
  assert.equal(await token.get(null), "abc.def");
});
