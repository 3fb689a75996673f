package calls

import "strings"

// Hole is a place in the spelling of a call.
type Hole uint8

const (
	NoHole Hole = iota
	HoleName
	HoleID
	HoleIndex // of the call in the conversation
	HoleArguments
)

// Part is a text, or a hole.
type Part struct {
	Text string
	Hole Hole
}

// Spelling is how a model that was trained on a format writes calls. The parser
// reads more than that; Write and the grammar of a format follow the spelling.
type Spelling struct {
	First, Between, Last string // around the calls, and between two of them
	Call                 []Part
}

// parts makes the parts of a call from texts and holes, and leaves out empty texts.
func parts(all ...any) (list []Part) {
	for _, one := range all {
		switch one := one.(type) {
		case Hole:
			list = append(list, Part{Hole: one})
		case string:
			if last := len(list) - 1; last >= 0 && list[last].Hole == NoHole {
				list[last].Text += one
			} else if one != "" {
				list = append(list, Part{Text: one})
			}
		}
	}
	return list
}

// Spelling returns how calls of f are written.
func (f *Format) Spelling() Spelling {
	open, end := "", ""
	if len(f.Open) > 0 && !f.Bare {
		open = f.Open[0]
	}
	if len(f.Close) > 0 && !f.Bare {
		end = f.Close[0]
	}
	s := Spelling{First: f.Around[0], Last: f.Around[1]}
	switch f.Shape {
	case JSONCalls:
		f.spellJSON(&s, open, end)
	case Named:
		f.spellNamed(&s, open, end)
	case Tagged:
		f.spellTagged(&s, open, end)
	case Pythonic:
		s = Spelling{First: open + "[", Between: ", ", Last: "]" + end, Call: parts(HoleName, "(", HoleArguments, ")")}
	case Braces:
		s.Call = parts(open+f.Prefix, HoleName, "{", HoleArguments, "}"+end)
	case Harmony:
		s.Between = "<|start|>assistant"
		s.Call = parts("<|channel|>commentary to=functions.", HoleName, " <|constrain|>json<|message|>", HoleArguments, "<|call|>")
	}
	return s
}

func (f *Format) spellJSON(s *Spelling, open, end string) {
	newline := ""
	if f.Newlines {
		newline = "\n"
	}
	var call []any
	switch {
	case f.NameIsKey:
		call = []any{`{"`, HoleName, `": `, HoleArguments}
	case f.IDs == CountsID:
		call = []any{`{"` + f.IDKeys[0] + `": "`, HoleIndex, `", "` + f.NameKeys[0] + `": "`, HoleName, `", "parameters": `, HoleArguments}
	case f.Bare:
		call = []any{`{"name": "`, HoleName, `", "parameters": `, HoleArguments}
	default:
		call = []any{`{"` + f.NameKeys[0] + `": "`, HoleName, `", "` + f.ArgsKeys[0] + `": `, HoleArguments}
	}
	if f.IDLast {
		call = append(call, `, "`+f.IDKeys[0]+`": "`, HoleID, `"`)
	}
	call = append(call, "}")
	if f.List {
		s.First, s.Between, s.Last, s.Call = open+"[", ", ", "]"+end, parts(call...)
		return
	}
	s.Between = "\n"
	if f.Bare {
		s.Between = "; "
	}
	s.Call = parts(append(append([]any{open + newline}, call...), newline+end)...)
}

func (f *Format) spellNamed(s *Spelling, open, end string) {
	call := []any{open + f.Prefix}
	switch {
	case f.IDFirst:
		call = append(call, HoleID, f.IDMark, HoleName, f.ArgsMark, HoleArguments)
	case f.IDs == KimiID:
		call = append(call, "functions.", HoleName, ":", HoleIndex, f.ArgsMark, HoleArguments)
	case f.Fence:
		call = append(call, HoleName, "\n```json\n", HoleArguments, "\n```")
	case len(f.NameEnd) > 0:
		call = append(call, HoleName, f.NameEnd[0], HoleArguments)
	default:
		call = append(call, HoleName, f.ArgsMark, HoleArguments)
	}
	s.Call = parts(append(call, end)...)
}

func (f *Format) spellTagged(s *Spelling, open, end string) {
	nameEnd := f.CallNameEnd
	if strings.HasSuffix(f.CallOpen, `"`) && !strings.HasPrefix(nameEnd, `"`) {
		nameEnd = `"` + nameEnd
	}
	if !strings.HasSuffix(nameEnd, "\n") {
		nameEnd += "\n"
	}
	s.Between = "\n"
	switch {
	case f.CallOpen == "":
		s.First, s.Last = s.First+"\n", "\n"+s.Last
		s.Call = parts(open, HoleName, nameEnd, HoleArguments, f.CallClose)
	case f.Grouped:
		s.First, s.Last = open+"\n", "\n"+end
		s.Call = parts(f.CallOpen, HoleName, nameEnd, HoleArguments, f.CallClose)
	default:
		s.Call = parts(open+"\n"+f.CallOpen, HoleName, nameEnd, HoleArguments, f.CallClose+"\n"+end)
	}
	if f.CallOpen == "" && f.Around[0] == "" {
		s.First, s.Last = "", ""
	}
}

// Argument returns what stands before and after the value of an argument of a tagged
// call. Both may have newlines, which are the tags' own.
func (f *Format) Argument(key string, isString bool) (before, after string) {
	attribute := f.OtherAttr
	if isString {
		attribute = f.StringAttr
	}
	quote, newline := "", ""
	if strings.HasSuffix(f.KeyOpen, `"`) && !strings.HasPrefix(f.KeyEnd, `"`) {
		quote = `"`
	}
	if f.Newlines {
		newline = "\n"
	}
	before = f.KeyOpen + key + quote + attribute + f.KeyEnd
	if f.ValueOpen != "" {
		before += "\n" + f.ValueOpen
	}
	return before + newline, newline + f.ValueClose + "\n"
}
