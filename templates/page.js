"use strict";
const text = document.getElementById("text");
const severity = document.getElementById("severity");
const code = document.getElementById("code");
const notebooks = [...document.querySelectorAll("[data-notebook]")];

function filter() {
  for (const each of notebooks) {
    const names = each.dataset.notebook.toLowerCase().includes(text.value.toLowerCase());
    const counts = !severity.value || Number(each.dataset[severity.value]) > 0;
    const codes = !code.value || each.dataset.codes.split(" ").includes(code.value);
    each.hidden = !(names && counts && codes);
  }
}

for (const control of [text, severity, code]) control.addEventListener("input", filter);
document.getElementById("all").addEventListener("click", (event) => {
  const rows = [...document.querySelectorAll("details.row")];
  const open = rows.some((row) => !row.open);
  for (const row of rows) row.open = open;
  event.target.textContent = open ? "Fold all" : "Unfold all";
});

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
}

addEventListener("hashchange", reveal);
reveal();
