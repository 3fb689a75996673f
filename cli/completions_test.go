package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// completion is what the tests read of an answer of the legacy route.
type completion struct {
	Choices []struct {
		Text     string
		Logprobs struct {
			Tokens []string             `json:"tokens"`
			Values []*float64           `json:"token_logprobs"`
			Tops   []map[string]float64 `json:"top_logprobs"`
			Offset []int                `json:"text_offset"`
		}
	}
}

func (p *process) complete(body map[string]any) (c completion) {
	p.t.Helper()
	resp, err := p.postTo(p.t.Context(), "/v1/completions", body)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil || len(c.Choices) == 0 {
		p.t.Fatalf("%d, %v, %+v", resp.StatusCode, err, c)
	}
	return c
}

// With a real model: the token is in the list of its position, whatever was asked for
// and however unlikely it was; an echoed prompt and its answer are one text.
func TestCompletionsOfARealModel(t *testing.T) {
	t.Parallel()
	path := shared(t, "models/SmolLM2-135M-Instruct.Q4_1.gguf")
	name := strings.TrimSuffix(filepath.Base(path), ".gguf")
	p := serve(t, "--model", path)
	for _, most := range []int{0, 1, 5} {
		for _, echo := range []bool{false, true} {
			what := fmt.Sprintf("logprobs %d, echo %v", most, echo)
			c := p.complete(map[string]any{"model": name, "prompt": "Once upon a time", "temperature": 1.8, "seed": 5, "max_tokens": 12, "logprobs": most, "echo": echo})
			l, beyond := c.Choices[0].Logprobs, 0
			if len(l.Tokens) < 8 || len(l.Tops) != len(l.Tokens) || len(l.Values) != len(l.Tokens) || len(l.Offset) != len(l.Tokens) {
				t.Fatalf("%s: %+v", what, l)
			}
			for i, token := range l.Tokens {
				if l.Values[i] == nil {
					if i > 0 || !echo || l.Tops[i] != nil {
						t.Errorf("%s: nothing is said of token %d", what, i)
					}
					continue
				}
				own, ok := l.Tops[i][token]
				sum := 0.0
				for _, x := range l.Tops[i] {
					sum += math.Exp(x)
				}
				if !ok || own != *l.Values[i] || len(l.Tops[i]) > most+1 || len(l.Tops[i]) < max(1, most) || sum > 1+1e-4 {
					t.Errorf("%s: %q at %v, of %v with the sum %v", what, token, *l.Values[i], l.Tops[i], sum)
				}
				if len(l.Tops[i]) == most+1 {
					beyond++
				}
			}
			if beyond == 0 {
				t.Errorf("%s: every token was among the likeliest, so this shows nothing", what)
			}
		}
	}
	c := p.complete(map[string]any{"model": name, "prompt": []int{104, 10813, 242}, "echo": true, "logit_bias": map[string]int{"218": 100}, "max_tokens": 1, "logprobs": 0})
	if l := c.Choices[0].Logprobs; c.Choices[0].Text != "x😀" || fmt.Sprint(l.Offset) != "[0 1 1 1]" {
		t.Errorf("%q at %v", c.Choices[0].Text, l.Offset)
	}
}
