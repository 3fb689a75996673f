package spans

import "fmt"

// Names says which conventions the gen_ai attributes follow.
type Names uint8

const (
	// Names141 are the OpenTelemetry conventions up to v1.41, which gateways and
	// engines in the field emit.
	Names141 Names = iota
	// NamesGenAI are the separate GenAI conventions, v0.1.0.
	NamesGenAI
)

func (n Names) String() string { return [...]string{"1.41", "genai"}[n] }

// parseNames reads what String returns.
func parseNames(text string) (Names, error) {
	for _, n := range []Names{Names141, NamesGenAI} {
		if n.String() == text {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%q is not one of 1.41, genai", text)
}

// TopK returns the attribute of a request's top_k, a float in the older names.
func (n Names) TopK(k int) Attribute {
	if n == NamesGenAI {
		return Int("gen_ai.request.top_k", k)
	}
	return Float("gen_ai.request.top_k", float64(k))
}

func (n Names) schemaURL() string {
	if n == NamesGenAI {
		return ""
	}
	return "https://opentelemetry.io/schemas/1.41.0"
}
