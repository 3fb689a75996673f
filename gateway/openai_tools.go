package gateway

import (
	"encoding/json"
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
)

// toolFields reads tools and how the answer may use them. The prompt shows tools also
// where tool_choice is none, so that it begins as the other turns' prompts do.
func (c *call) toolFields(f *fields, request *wire.Request, countMax int) {
	request.Tools = f.tools(countMax)
	parallel := f.flagOr("parallel_tool_calls", true)
	o := &c.options
	o.Split = true
	switch raw, given := f.given("tool_choice"); {
	case given && string(raw) == `"none"`:
		o.NoCalls = request.Tools != nil
		return
	case given && string(raw) != `"auto"`:
		f.fail("tool_choice", `tool_choice other than "auto" or "none" is not supported`)
	}
	o.Tools = request.Tools
	if !parallel {
		o.CallsMax = 1
	}
}

// tools checks the tools, and returns the client's own bytes, nil for none.
func (f *fields) tools(countMax int) json.RawMessage {
	raw, ok := f.given("tools")
	switch n := count(raw); {
	case ok && !isArray(raw):
		f.fail("tools", "tools must be an array")
		return nil
	case n == 0:
		return nil
	case n > countMax:
		f.fail("tools", "tools may hold at most %d entries, not %d", countMax, n)
		return nil
	}
	for i, tool := range elements(raw) {
		at := "tools[" + strconv.Itoa(i) + "]"
		if !f.tool(at, tool) {
			return nil
		}
	}
	return raw
}

func (f *fields) tool(at string, raw json.RawMessage) bool {
	function := member(raw, "function")
	name, parameters, strict := member(function, "name"), member(function, "parameters"), member(function, "strict")
	switch {
	case string(member(raw, "type")) != `"function"` || !isString(name) || len(name) == len(`""`):
		f.fail(at, `%s must be {"type":"function","function":{"name":"…"}}`, at)
		return false
	case parameters != nil && string(parameters) != "null" && !isObject(parameters):
		f.fail(at+".function.parameters", "%s.function.parameters must be a JSON schema, which is an object", at)
		return false
	case string(strict) == "true":
		f.ignore([]byte("tools.function.strict"))
	}
	return true
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
