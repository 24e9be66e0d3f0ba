// For the talk page, the console and their tests. Run from the repository's root: the files are outside sdk/js.
import js from "@eslint/js";
import tseslint from "typescript-eslint";

const PAGE = "services/session_gateway/web/page/app";
const ROOM = "services/session_gateway/web/page/room";
const CONSOLE = "services/console/page/app";

const PURE_OF_PAGE = ["state", "utterances", "offer", "facts", "texts"];
const PURE_OF_ROOM = ["languages", "lines", "link", "qr", "state", "texts"];
const PURE_OF_CONSOLE = [
  ...["backoff", "chart", "filters", "format", "languages", "matrix", "merge-patch", "router"],
  ...["settings", "timeline", "waterfall", "words"],
];

export default tseslint.config(
  js.configs.recommended,
  {
    files: [
      `${PAGE}/*.js`,
      `${ROOM}/*.js`,
      `${CONSOLE}/*.js`,
      "sdk/js/test/{page,room,console}/*.js",
    ],
    extends: [...tseslint.configs.recommendedTypeChecked],
    languageOptions: {
      parserOptions: { project: "./tsconfig.page.json", tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      complexity: ["error", 12],
      "max-lines": ["error", 400],
      // tsc knows the globals.
      "no-undef": "off",
      "@typescript-eslint/no-floating-promises": [
        "error",
        {
          allowForKnownSafeCalls: [
            { from: "package", package: "node:test", name: ["test", "describe"] },
          ],
        },
      ],
    },
  },
  {
    // Texts of nodes are never markup.
    files: [`${PAGE}/*.js`, `${ROOM}/*.js`, `${CONSOLE}/*.js`],
    rules: {
      "no-restricted-properties": [
        "error",
        { property: "innerHTML" },
        { property: "outerHTML" },
        { property: "insertAdjacentHTML" },
        { property: "dangerouslySetInnerHTML" },
      ],
    },
  },
  {
    // Pure: no I/O, no clock, no document.
    files: [
      ...PURE_OF_PAGE.map((name) => `${PAGE}/${name}.js`),
      ...PURE_OF_ROOM.map((name) => `${ROOM}/${name}.js`),
      ...PURE_OF_CONSOLE.map((name) => `${CONSOLE}/${name}.js`),
    ],
    rules: {
      "no-restricted-globals": [
        "error",
        ...["Date", "console", "document", "fetch", "localStorage", "location", "navigator"],
        ...["performance", "queueMicrotask", "sessionStorage", "setInterval", "setTimeout"],
        ...["window"],
      ],
      "no-restricted-imports": ["error", { patterns: ["./html.js", "./sdk.js", "./state.js"] }],
    },
  },
);
