package chat

import (
	"errors"
	"strings"
)

// Pair is the template of a model that scores documents: text with {query} and {document} in
// place of the two. It never changes.
type Pair struct {
	template string
	guard    *guard
}

// NewPair reads a template. controls are the model's control strings, which stay text in a
// query and a document.
func NewPair(template string, controls []string) (*Pair, error) {
	if strings.Count(template, "{query}") != 1 || strings.Count(template, "{document}") != 1 {
		return nil, errors.New("a template for ranking has {query} and {document} once each")
	}
	return &Pair{template: template, guard: newGuard(controls)}, nil
}

// Render puts a query and a document into the template. The text has tokenizer.Guards.
func (p *Pair) Render(query, document string) string {
	return strings.NewReplacer("{query}", p.guard.text(query), "{document}", p.guard.text(document)).Replace(p.template)
}
