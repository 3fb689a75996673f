package kv

import "testing"

func TestD06(t *testing.T) {
	p, err := New(Config{Pages: 8, PageTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	toks := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	s := p.Open("", toks)
	if !p.Claim(s, toks) {
		t.Fatal("no claim")
	}
	if _, ok := p.Reserve(s, 8, nil); !ok {
		t.Fatal("no room")
	}
	p.Commit(s, toks)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	p.Close(s)
	if s = p.Open("", toks); s.Len() != 4 || p.Match("", toks) != 4 {
		t.Fatal(s.Len())
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
}
