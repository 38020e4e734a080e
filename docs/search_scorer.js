// How Sphinx's search ranks pages: what people do with the package comes before what it is made of.
// Read by `html_search_scorer`; the numbers below `score` are Sphinx's own.
const PAGE_WEIGHTS = [
  [/^(start|faq|how-to|tutorials|reference\/glossary)/, 2],
  [/^reference\/api\/bayes_mdp/, 0.5],
  [/^(changelog|measured|papers|reference\/versions|reference\/from)/, 0.5],
];

var Scorer = {
  score: ([page, , , , score]) =>
    (PAGE_WEIGHTS.find(([pattern]) => pattern.test(page)) || [null, 1])[1] * score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
