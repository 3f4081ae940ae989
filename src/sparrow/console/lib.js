// The libraries, in one place: `html` renders components, texts in it are always text.
import { h, render, Fragment } from "./vendor/preact.js";
import { useState, useEffect, useRef, useMemo, useId, useLayoutEffect } from "./vendor/hooks.js";
import { signal, computed, effect } from "./vendor/signals.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Fragment, signal, computed, effect };
export { useState, useEffect, useRef, useMemo, useId, useLayoutEffect };
