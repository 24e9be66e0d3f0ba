// Writes what the talk page needs and does not write itself: the SDK as one file, and the libraries
// as npm has them. With --check it only compares. The results are committed (docs/decisions/0050).
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { build } from "esbuild";

const SDK = dirname(import.meta.dirname);
const PAGE = join(SDK, "../../services/session_gateway/web/page");

const LIBRARIES = [
  { name: "preact", from: "dist/preact.mjs" },
  { name: "htm", from: "dist/htm.module.js" },
];

/** The SDK's modules as one file, readable, with nothing renamed. */
async function bundled(entry) {
  const result = await build({
    entryPoints: [join(SDK, entry)],
    bundle: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    write: false,
    absWorkingDir: SDK,
    banner: { js: `// Generated from sdk/js/${entry} by \`make js\`. Do not edit.` },
  });
  return result.outputFiles[0].text;
}

function vendored() {
  const files = {};
  const rows = [];
  for (const { name, from } of LIBRARIES) {
    const folder = join(SDK, "node_modules", name);
    const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const text = readFileSync(join(folder, from), "utf8");
    const licence = `${name}.LICENSE`;
    files[`vendor/${name}.js`] = text;
    files[`vendor/${licence}`] = readFileSync(join(folder, "LICENSE"), "utf8");
    const sum = createHash("sha256").update(text).digest("hex");
    rows.push(
      `| \`${name}.js\` | \`${name}\` ${manifest.version}, \`${from}\` | ${manifest.license} ` +
        `(\`${licence}\`) | \`${sum}\` |`,
    );
  }
  files["vendor/README.md"] = [
    "# Libraries of other projects",
    "",
    "Unchanged files of npm packages, so that the page loads nothing from elsewhere. To take another",
    "version, change it in `sdk/js/package.json` and run `make js`.",
    "",
    "| file | package | licence | SHA-256 |",
    "|---|---|---|---|",
    ...rows,
    "",
  ].join("\n");
  return files;
}

const files = {
  "lingua/lingua.js": await bundled("src/index.ts"),
  "lingua/worklet.js": await bundled("src/microphone/worklet.ts"),
  ...vendored(),
};

const stale = [];
for (const [path, text] of Object.entries(files)) {
  const file = join(PAGE, path);
  let found = "";
  try {
    found = readFileSync(file, "utf8");
  } catch {
    // Not there yet.
  }
  if (found === text) {
    continue;
  }
  stale.push(path);
  if (!process.argv.includes("--check")) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
}
if (stale.length > 0 && process.argv.includes("--check")) {
  console.error(`${stale.join(", ")} of the talk page: not what \`make js\` makes; run it`);
  process.exitCode = 1;
}
