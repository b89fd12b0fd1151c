// How the results of the search are ordered: Sphinx copies this file into its own script, in place of its own scores. The pages
// for those that work on aiokprod come last: they name everything, and would be found before the pages that explain it.
const OF_THE_PROJECT = [
  "CONTRIBUTING",
  "broker_rules",
  "design",
  "faults",
  "hostile_answers",
  "ledger",
  "releasing",
  "soak",
  "spark_exactly_once",
  "transactions_states",
];

// What is added to the score of a result: Sphinx gives all pages that contain a word the same, and then sorts by title.
function added([docname, title, anchor, descr, score, filename, kind]) {
  if (OF_THE_PROJECT.includes(docname)) return -1000;
  if (docname === "reference/api_compat") return -8; // another client's names
  return kind === "text" && !docname.startsWith("reference/") && docname !== "performance" ? 1 : 0;
}

var Scorer = {
  score: (result) => result[4] + added(result),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
