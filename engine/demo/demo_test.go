package demo

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

// answer is one line of the reference: what another implementation, in
// float32 on the dequantised weights, answers greedily.
type answer struct {
	PromptIDs []int32   `json:"prompt_ids"`
	IDs       []int32   `json:"ids"`
	Margins   []float64 `json:"margins"` // of the first over the second logit
}

// closeMargin is the margin under which a choice may fall either way.
const closeMargin = 0.05

func readAnswers(t *testing.T) (answers []answer) {
	path := filepath.Join("..", "..", "..", "shared", "demo-model", "reference.jsonl")
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("reference answers %s are not there", path)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) == 0 {
		t.Fatal("no reference answers")
	}
	return answers
}

func TestGreedyAnswersEqualReference(t *testing.T) {
	answers := readAnswers(t)
	f, err := gguf.Parse(Name, GGUF())
	if err != nil {
		t.Fatal(err)
	}
	if name, _, _ := f.String("general.name"); name != Name {
		t.Errorf("the file's name is %q, want %q", name, Name)
	}
	team := kernels.NewTeam(2)
	defer team.Close()
	// Every set is held to reference logits in package model. Here the best one
	// answers all, and the specification one in twelve, to a twelfth.
	for _, c := range []struct {
		set  *kernels.Set
		part int
	}{{kernels.Best(), 1}, {kernels.Sets()[len(kernels.Sets())-1], 12}} {
		t.Run(c.set.Name, func(t *testing.T) {
			m, err := model.Load(f, c.set, team, model.Options{ContextTokens: 512})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for i := 0; i < len(answers); i += c.part {
				a := answers[i]
				a.IDs = a.IDs[:(len(a.IDs)+c.part-1)/c.part]
				checkAnswer(t, m, i, a)
			}
		})
	}
}

func checkAnswer(t *testing.T, m *model.Model, line int, a answer) {
	t.Helper()
	pages := make([]int32, m.Options().Pages)
	for i := range pages {
		pages[i] = int32(i)
	}
	feed, start := a.PromptIDs, 0
	for step, want := range a.IDs {
		logits := m.Forward([]model.Chunk{{Tokens: feed, Start: start, Pages: pages, Logits: 1}})
		start += len(feed)
		got := 0
		for id, logit := range logits {
			if logit > logits[got] {
				got = id
			}
		}
		if int32(got) != want {
			if a.Margins[step] >= closeMargin {
				t.Errorf("answer %d: token %d is %d, want %d with a margin of %g", line, step, got, want, a.Margins[step])
			}
			return
		}
		feed = a.IDs[step : step+1]
	}
}
