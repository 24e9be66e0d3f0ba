/** What is published: the package has what it needs, and nothing else. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const HERE = new URL("../../", import.meta.url).pathname;
const ROOT = new URL("../../../../", import.meta.url).pathname;

interface Packed {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}

function read(path: string): string {
  return readFileSync(path, "utf8");
}

test("the package is clean, and works where it is installed", (context) => {
  const folder = mkdtempSync(join(tmpdir(), "lingua-pack-"));
  context.after(() => {
    rmSync(folder, { recursive: true, force: true });
  });
  // It is built already, and other tests use what is built.
  const options = ["pack", "--json", "--ignore-scripts", "--pack-destination", folder];
  const written = execFileSync("npm", options, { cwd: HERE, encoding: "utf8" });
  const [packed] = JSON.parse(written) as Packed[];
  assert(packed !== undefined);
  const paths = packed.files.map((file) => file.path);
  const known = /^(package\.json|README\.md|LICENSE|dist\/[a-z/-]+\.(js|d\.ts))$/;
  assert.deepEqual(
    paths.filter((path) => !known.test(path)),
    [],
  );
  for (const needed of ["LICENSE", "README.md", "dist/index.d.ts", "dist/microphone/worklet.js"]) {
    assert(paths.includes(needed), needed);
  }
  const installed = join(folder, "node_modules", "@lingua-scheduler", "client");
  mkdirSync(installed, { recursive: true });
  execFileSync("tar", [
    "xzf",
    join(folder, packed.filename),
    "-C",
    installed,
    "--strip-components=1",
  ]);
  const program = join(folder, "program.mjs");
  writeFileSync(
    program,
    `import { Microphone, Player, Session } from "@lingua-scheduler/client";
     import.meta.resolve("@lingua-scheduler/client/worklet.js");
     console.log([Microphone, Player, Session].every((each) => typeof each === "function"));`,
  );
  assert.equal(execFileSync("node", [program], { encoding: "utf8" }), "true\n");
});

test("the worklet stands alone: some browsers load no imports in the audio thread", () => {
  assert.doesNotMatch(read(join(HERE, "dist/microphone/worklet.js")), /^\s*(import|export [^{])/m);
});

test("licence and version are those of the repository, and nothing is needed to run it", () => {
  const manifest = JSON.parse(read(join(HERE, "package.json"))) as Record<string, unknown>;
  assert.equal(read(join(HERE, "LICENSE")), read(join(ROOT, "LICENSE")));
  const version = /^version = "(.*)"$/m.exec(read(join(ROOT, "pyproject.toml")))?.[1];
  // npm writes versions under development in another way.
  assert.equal(manifest.version, version?.replace(".dev", "-dev."));
  assert.equal(manifest.dependencies, undefined);
  assert.equal(manifest.private, true, "it is not published yet");
});
