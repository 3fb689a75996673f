package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const templates = "../../../shared/conformance/templates"

// reference is a real model's template with conversations that the reference
// implementation rendered.
type reference struct {
	Name     string `json:"name"`
	BOS      string `json:"bos_token"`
	EOS      string `json:"eos_token"`
	Now      string `json:"now"`
	Template string `json:"template"`
	Cases    []struct {
		Case     string          `json:"case"`
		Messages json.RawMessage `json:"messages"`
		Tools    json.RawMessage `json:"tools"`
		Options  json.RawMessage `json:"kwargs"`
		Text     *string         `json:"text"`
		Raises   *string         `json:"raises"`
		Fails    *string         `json:"fails"`
	} `json:"cases"`
}

func references(t testing.TB) (list []reference) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(templates, "*.json"))
	if len(paths) == 0 {
		t.Skipf("test data is missing: %s", templates)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var r reference
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list = append(list, r)
	}
	return list
}

func (r *reference) compile(t testing.TB) *Template {
	t.Helper()
	tmpl, err := New(r.Template, Options{BOS: r.BOS, EOS: r.EOS})
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	return tmpl
}

func (r *reference) now(t testing.TB) time.Time {
	t.Helper()
	now, err := time.Parse("2006-01-02T15:04:05", r.Now)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// TestReferenceTemplates compares every conversation byte for byte. Where
// the reference itself breaks down there is nothing to compare.
func TestReferenceTemplates(t *testing.T) {
	compared := 0
	for _, r := range references(t) {
		tmpl, now := r.compile(t), r.now(t)
		for _, c := range r.Cases {
			got, err := tmpl.Render(t.Context(), Input{
				Messages: c.Messages, Tools: c.Tools, Options: c.Options, Now: now, Verbatim: true,
			})
			var raised *Raised
			switch {
			case c.Fails != nil:
				continue
			case c.Raises != nil:
				if !errors.As(err, &raised) || raised.Message != *c.Raises {
					t.Errorf("%s %s: got %q, %v; want the refusal %q", r.Name, c.Case, got, err, *c.Raises)
				}
			case err != nil:
				t.Errorf("%s %s: %v", r.Name, c.Case, err)
			case got != *c.Text:
				n := 0
				for n < min(len(got), len(*c.Text)) && got[n] == (*c.Text)[n] {
					n++
				}
				from := max(n-40, 0)
				t.Errorf("%s %s: differs at byte %d:\n got %.120q\nwant %.120q", r.Name, c.Case, n, got[from:], (*c.Text)[from:])
			}
			compared++
		}
	}
	t.Logf("%d conversations compared", compared)
}
