package calls

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Render renders a conversation by the model's template. tools and options may be
// nil.
type Render func(messages, tools, options json.RawMessage) (string, error)

// Found is what a template says about tools and reasoning.
type Found struct {
	// Format is the one that the template writes, or Plain where it writes none.
	Format *Format
	// TellsTools reports whether the prompt shows the model its tools.
	TellsTools bool
	// ToolsOption is the template's option that takes them, "" for tools.
	ToolsOption string
	// HistoryCalls is how many calls of one turn the template renders: 0, 1 or 2.
	HistoryCalls int
}

// NoPlaceError says that a template has no place for tools.
type NoPlaceError struct{ Reason string }

func (e *NoPlaceError) Error() string {
	return "the model's chat template has no place for tools: " + e.Reason
}

// Check returns a *NoPlaceError if tools cannot be used with the template.
func (f *Found) Check() error {
	switch {
	case f.Format.Shape == 0 && !f.TellsTools:
		return &NoPlaceError{"it renders neither tools nor calls"}
	case f.Format.Shape == 0:
		return &NoPlaceError{"it shows tools, but the way in which the model calls them is not known"}
	case !f.TellsTools:
		return &NoPlaceError{fmt.Sprintf("it renders calls (%s), but shows the model no tools", f.Format.Name)}
	}
	return nil
}

// Plain is an answer without calls, in which only reasoning is split off.
var Plain = &Format{Name: "none", ThinkOpen: "<think>", ThinkClose: "</think>"}

// The needles of the conversations that Detect renders.
const (
	needleQuestion = "needlequestion"
	needleAnswer   = "needleanswer"
	needleFirst    = "needlefirst"
	needleSecond   = "needlesecond"
	needleTools    = `[{"type":"function","function":{"name":"needlefirst","description":"d","parameters":{"type":"object","properties":{"needletext":{"type":"string","description":"d"},"needlenumber":{"type":"integer","description":"d"}},"required":["needletext"]}}},` +
		`{"type":"function","function":{"name":"needlesecond","description":"d","parameters":{"type":"object","properties":{"needletext":{"type":"string","description":"d"}},"required":[]}}}]`
	needleUser  = `{"role":"user","content":"needlequestion"}`
	needleCall1 = `{"id":"call00001","type":"function","function":{"name":"needlefirst","arguments":"{\"needletext\":\"needlevalue\",\"needlenumber\":17}"}}`
	needleCall2 = `{"id":"call00002","type":"function","function":{"name":"needlesecond","arguments":"{\"needletext\":\"needleother\"}"}}`
	needleArgs1 = `{"needletext":"needlevalue","needlenumber":17}`
	needleArgs2 = `{"needletext":"needleother"}`
)

// Detect finds the format that a template writes: it renders a turn with two
// calls, and takes the first row whose parser gets them back. Where the template
// renders none, it takes the row whose markers the prompt with tools names.
func Detect(render Render) Found {
	found := Found{Format: Plain}
	without, _ := render([]byte("["+needleUser+"]"), nil, nil)
	with, rendered := found.tell(render), false
	for _, reasoning := range []string{`,"reasoning_content":"needlereason"`, ""} {
		for _, list := range []string{needleCall1 + "," + needleCall2, needleCall1} {
			turn, bare, ok := renderTurn(render, found.ToolsOption, reasoning, list)
			if !ok {
				continue
			}
			rendered = true
			if f, n := readTurn(turn, bare); f != nil {
				found.Format, found.HistoryCalls = f, n
				return found
			}
		}
	}
	// Calls that no row reads are in a format of which hints know nothing.
	if found.TellsTools && !rendered {
		if f := hinted(with, without); f != nil {
			found.Format = f
		}
	}
	return found
}

// toolOptions are the names by which templates take tools.
var toolOptions = []string{"", "xml_tools"}

// tell finds out whether the prompt shows the tools, and returns it.
func (found *Found) tell(render Render) string {
	for _, option := range toolOptions {
		tools, options := toolInput(option)
		text, err := render([]byte("["+needleUser+"]"), tools, options)
		if err == nil && strings.Contains(text, needleFirst) && strings.Contains(text, needleSecond) {
			found.TellsTools, found.ToolsOption = true, option
			return text
		}
	}
	return ""
}

func toolInput(option string) (tools, options json.RawMessage) {
	if option == "" {
		return json.RawMessage(needleTools), nil
	}
	return nil, json.RawMessage(`{"` + option + `":` + needleTools + `}`)
}

// renderTurn returns what the template writes for an answer with calls. bare says
// that nothing of the template's own stands before it.
func renderTurn(render Render, option, reasoning, list string) (turn string, bare, ok bool) {
	tools, options := toolInput(option)
	text, err := render([]byte("["+needleUser+`,{"role":"assistant","content":""`+reasoning+`,"tool_calls":[`+list+`]}]`), tools, options)
	at := strings.LastIndex(text, needleQuestion)
	if err != nil || at < 0 || !strings.Contains(text[at:], needleFirst) {
		return "", false, false
	}
	turn = text[at+len(needleQuestion):]
	// What stands before a plain answer is no part of it.
	plain, _ := render([]byte("["+needleUser+`,{"role":"assistant","content":"`+needleAnswer+`"}]`), tools, options)
	if at = strings.LastIndex(plain, needleQuestion); at >= 0 {
		head, _, _ := strings.Cut(plain[at+len(needleQuestion):], needleAnswer)
		turn, bare = cutHead(turn, head)
	}
	return turn, bare, true
}

// cutHead cuts head off turn, as far as only white space differs.
func cutHead(turn, head string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(turn, strings.TrimSpace(head))
	if !ok {
		rest, ok = strings.CutPrefix(strings.TrimSpace(turn), strings.TrimSpace(head))
	}
	if !ok {
		return turn, false
	}
	return strings.TrimSpace(rest), true
}

// readTurn returns the first format that reads the needles' calls from turn.
func readTurn(turn string, bare bool) (f *Format, n int) {
	tools := ReadTools(json.RawMessage(needleTools))
	for _, f := range Formats {
		text := turn
		if f.Shape == Harmony {
			// The header of a message is the template's.
			if i := strings.Index(text, "<|start|>assistant"); i >= 0 {
				text = text[i+len("<|start|>assistant"):]
			}
		}
		if n := needleCalls(f, text, tools, bare); n > 0 {
			return f, n
		}
	}
	return nil, 0
}

// needleCalls returns how many of the needles' calls f reads from text, or 0 if it
// reads anything else.
func needleCalls(f *Format, text string, tools []Tool, bare bool) int {
	if f.Bare && !bare {
		// Only its markers count.
		withMarkers := *f
		withMarkers.Bare = false
		f = &withMarkers
	}
	p := NewParser(f.Bind(nil), Options{Tools: tools, Certain: true})
	var names []string
	var args []bytes.Buffer
	take := func(events []Event) {
		for _, e := range events {
			switch e.Kind {
			case CallStart:
				names, args = append(names, e.Name), append(args, bytes.Buffer{})
			case Args:
				args[e.Index].Write(e.Text)
			}
		}
	}
	take(p.Feed(-1, []byte(text)))
	events, result := p.Finish(false)
	take(events)
	if result.Ended == 0 || result.Ended != len(names) || result.Ended > 2 {
		return 0
	}
	for i, want := range []string{needleArgs1, needleArgs2}[:len(names)] {
		if names[i] != []string{needleFirst, needleSecond}[i] || !sameObject(args[i].Bytes(), want) {
			return 0
		}
	}
	return len(names)
}

// sameObject compares objects whose keys a template may have sorted.
func sameObject(got []byte, want string) bool {
	var a, b map[string]any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal([]byte(want), &b) == nil && maps.Equal(a, b)
}

// hinted returns the format whose markers the prompt with tools has and the one
// without has not. The row with the most of them wins.
func hinted(with, without string) *Format {
	var best *Format
	most := 0
	for _, f := range Formats {
		if f.CallOpen != "" && !strings.Contains(with, f.CallOpen) || f.KeyOpen != "" && !strings.Contains(with, f.KeyOpen) {
			continue
		}
		score := 0
		for _, list := range [][]string{f.Open, f.Close, f.Hints, {f.CallOpen, f.KeyOpen, f.Escape}} {
			for _, text := range list {
				if text != "" && text != "```" && strings.Contains(with, text) && !strings.Contains(without, text) {
					score++
				}
			}
		}
		if score > most {
			best, most = f, score
		}
	}
	return best
}

// OpensReasoning reports whether prompt ends inside reasoning that it opened.
func (f *Format) OpensReasoning(prompt string) bool {
	open := strings.TrimSpace(f.ThinkOpen)
	return open != "" && strings.HasSuffix(strings.TrimSpace(prompt), open)
}
