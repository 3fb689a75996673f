package gateway

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"

	"github.com/forebay-io/forebay/internal/wire"
)

// toolFields reads tools and how the answer may use them. The prompt shows all tools
// whatever tool_choice says, so that it begins as the other turns' prompts do.
func (c *call) toolFields(f *fields, request *wire.Request, countMax int) {
	all, strict := f.tools(countMax)
	request.Tools = all
	o := &c.options
	o.Split = true
	if !f.flagOr("parallel_tool_calls", true) {
		o.CallsMax = 1
	}
	choice := f.toolChoice(all)
	if choice.none || all == nil {
		o.NoCalls, o.CallsMax = choice.none && all != nil, 0
		request.NoCalls = o.NoCalls
		return
	}
	if o.Tools = choice.tools; choice.one {
		o.CallsMax = 1
	}
	if strict || choice.required || choice.some {
		c.held = &wire.HeldCalls{Tools: o.Tools, Required: choice.required, Most: o.CallsMax}
	}
}

// holdCalls joins the tool calls that are held to the form of the answer. Beside a form all
// calls are: one that begins and does not go on as a call would be free text.
func (c *call) holdCalls() {
	if c.held == nil && c.options.Grammar != nil && c.options.Tools != nil {
		c.held = &wire.HeldCalls{Tools: c.options.Tools, Most: c.options.CallsMax}
	}
	if c.held == nil {
		return
	}
	g := &wire.Grammar{Kind: wire.GrammarCalls, Param: "tools"}
	if c.options.Grammar != nil {
		*g = *c.options.Grammar
	}
	g.Calls = c.held
	c.options.Grammar = g
}

// toolChoice is a client's tool_choice.
type toolChoice struct {
	none     bool
	required bool            // at least one call
	one      bool            // exactly one
	some     bool            // not all tools may be called
	tools    json.RawMessage // those that may be called
}

// toolChoice reads tool_choice, where all are the tools.
func (f *fields) toolChoice(all json.RawMessage) (c toolChoice) {
	c.tools = all
	raw, given := f.given("tool_choice")
	if !given {
		return c
	}
	kind := string(raw)
	if isObject(raw) {
		kind = string(member(raw, "type"))
	}
	switch kind {
	case `"none"`:
		c.none = true
		return c
	case `"auto"`:
		return c
	case `"required"`, `"any"`: // any is Mistral's and Anthropic's word
		c.required = true
	case `"function"`:
		name := member(member(raw, "function"), "name")
		if !isString(name) { // as in Responses
			name = member(raw, "name")
		}
		c.required, c.one, c.some = true, true, true
		c.tools = f.namedTools(all, []json.RawMessage{name})
	case `"allowed_tools"`:
		allowed := raw
		if inner := member(raw, "allowed_tools"); isObject(inner) {
			allowed = inner
		}
		c.some, c.required = true, string(member(allowed, "mode")) == `"required"`
		var names []json.RawMessage
		for _, tool := range elements(member(allowed, "tools")) {
			name := member(member(tool, "function"), "name")
			if name == nil {
				name = member(tool, "name")
			}
			names = append(names, name)
		}
		c.tools = f.namedTools(all, names)
	default:
		f.fail("tool_choice", `tool_choice must be "auto", "none", "required", {"type":"function","function":{"name":"…"}} or {"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[…]}}`)
		return c
	}
	if all == nil {
		f.fail("tool_choice", "tool_choice asks for a call, and there are no tools")
	}
	return c
}

// namedTools are the tools of those names, in the order of all.
func (f *fields) namedTools(all json.RawMessage, names []json.RawMessage) json.RawMessage {
	wanted := map[string]bool{}
	for _, name := range names {
		if !isString(name) {
			f.fail("tool_choice", "tool_choice must name each function by a string")
			return nil
		}
		wanted[unquote(name)] = true
	}
	list := []byte{'['}
	for _, tool := range elements(all) {
		name := unquote(member(member(tool, "function"), "name"))
		if !wanted[name] {
			continue
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, tool...)
		wanted[name] = false
	}
	for name, missing := range wanted {
		if missing {
			f.fail("tool_choice", "tool_choice names %.64q, which is not in tools", name)
			return nil
		}
	}
	if len(list) == 1 && all != nil {
		f.fail("tool_choice", "tool_choice allows no tool; use none")
	}
	return append(list, ']')
}

// tools checks the tools, and returns the client's own bytes, nil for none, and whether
// one of them is strict.
func (f *fields) tools(countMax int) (all json.RawMessage, strict bool) {
	raw, ok := f.given("tools")
	switch n := count(raw); {
	case ok && !isArray(raw):
		f.fail("tools", "tools must be an array")
		return nil, false
	case n == 0:
		return nil, false
	case n > countMax:
		f.fail("tools", "tools may hold at most %d entries, not %d", countMax, n)
		return nil, false
	}
	names := make(map[string]bool, 8)
	for i, tool := range elements(raw) {
		at := "tools[" + strconv.Itoa(i) + "]"
		name, isStrict := f.tool(at, tool)
		if names[name] && f.err == nil {
			f.fail(at+".function.name", "%s.function.name is %.64q, which another tool has too", at, name)
		}
		if f.err != nil {
			return nil, false
		}
		names[name], strict = true, strict || isStrict
	}
	return raw, strict
}

// placed tells an error about a tool's schema with the place of the tool in the request.
func (c *call) placed(err error) error {
	failed := (*wire.Error)(nil)
	if !errors.As(err, &failed) || failed == nil || !strings.HasPrefix(failed.Param, "tools[") {
		return err
	}
	for i, tool := range elements(c.prompts[0].Tools) {
		by := wire.ToolPlace(unquote(member(member(tool, "function"), "name")))
		if failed.Param != by {
			continue
		}
		at := "tools[" + strconv.Itoa(i) + "].function.parameters"
		if c.schemas != nil {
			at = c.schemas[i]
		}
		own := *failed
		own.Param, own.Message = at, strings.Replace(failed.Message, by, at, 1)
		return &own
	}
	return err
}

// toolNameBytesMax bounds the name of a tool. OpenAI takes 64.
const toolNameBytesMax = 128

// isToolName reports whether every format can write name.
func isToolName(name string) bool {
	return len(name) <= toolNameBytesMax && strings.IndexFunc(name, func(r rune) bool {
		return !(unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.:/$", r))
	}) < 0
}

// tool checks a tool, and returns its name and whether its schema must be followed.
func (f *fields) tool(at string, raw json.RawMessage) (name string, strict bool) {
	function := member(raw, "function")
	quoted, parameters := member(function, "name"), member(function, "parameters")
	switch {
	case string(member(raw, "type")) != `"function"` || !isString(quoted) || len(quoted) == len(`""`):
		f.fail(at, `%s must be {"type":"function","function":{"name":"…"}}`, at)
		return "", false
	case !isToolName(unquote(quoted)):
		f.fail(at+".function.name", "%s.function.name must have at most %d bytes, and only letters, digits and _ - . : / $", at, toolNameBytesMax)
		return "", false
	case parameters != nil && string(parameters) != "null" && !isObject(parameters):
		f.fail(at+".function.parameters", "%s.function.parameters must be a JSON schema, which is an object", at)
	}
	switch string(member(function, "strict")) {
	case "true":
		strict = true
	case "", "null", "false":
	default:
		f.fail(at+".function.strict", "%s.function.strict must be true or false", at)
	}
	return unquote(quoted), strict
}

// calls checks the tool calls of a message.
func (f *fields) calls(at string, raw json.RawMessage) {
	if raw != nil && string(raw) != "null" && !isArray(raw) {
		f.fail(at, "%s must be an array", at)
	}
	for i, one := range elements(raw) {
		function := member(one, "function")
		arguments := member(function, "arguments")
		if !isString(member(function, "name")) || arguments != nil && string(arguments) != "null" && !isString(arguments) && !isObject(arguments) {
			at := at + "[" + strconv.Itoa(i) + "]"
			f.fail(at, `%s must be {"id":"…","type":"function","function":{"name":"…","arguments":"{…}"}}`, at)
			return
		}
	}
}
