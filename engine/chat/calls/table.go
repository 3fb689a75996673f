package calls

// Formats are the formats that are known, by name. Rows that differ only in what
// they accept beside the same markers are one.
var Formats = []*Format{
	{
		Name: "hermes", Families: "Qwen2.5, Qwen3, SmolLM3, Granite 4, Hermes", Shape: JSONCalls,
		Open: []string{"<tool_call>"}, Close: []string{"</tool_call>"},
		Newlines: true, NameKeys: nameKeys, ArgsKeys: argsKeys,
		ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "seed-oss", Families: "Seed-OSS", Shape: Tagged,
		Open: []string{"<seed:tool_call>"}, Close: []string{"</seed:tool_call>"},
		CallOpen: "<function=", CallNameEnd: ">", CallClose: "</function>",
		KeyOpen: "<parameter=", KeyEnd: ">", ValueClose: "</parameter>",
		ThinkOpen: "<seed:think>", ThinkClose: "</seed:think>",
	},
	{
		Name: "qwen3-coder", Families: "Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5", Shape: Tagged,
		Open: []string{"<tool_call>"}, Close: []string{"</tool_call>"}, Tried: []string{"<function="},
		CallOpen: "<function=", CallNameEnd: ">", CallClose: "</function>",
		KeyOpen: "<parameter=", KeyEnd: ">", ValueClose: "</parameter>", Newlines: true,
		ThinkOpen: "<think>", ThinkClose: "</think>", ThinkCalls: true,
	},
	{
		Name: "llama3-json", Families: "Llama 3.1, 3.2 and 3.3", Shape: JSONCalls, Bare: true,
		Open: []string{"<|python_tag|>"}, Close: []string{"<|eom_id|>"},
		NameKeys: nameKeys, ArgsKeys: argsKeys,
	},
	{
		Name: "pythonic", Families: "Llama 3.2 and 4, Gemma 3, OLMo", Shape: Pythonic, Bare: true,
		Open: []string{"<|python_start|>"}, Close: []string{"<|python_end|>", "```"}, Tried: []string{"```tool_code"},
	},
	{
		Name: "lfm2", Families: "LFM2", Shape: Pythonic,
		Open: []string{"<|tool_call_start|>"}, Close: []string{"<|tool_call_end|>"},
		Hints:     []string{"<|tool_list_start|>", "List of tools: "},
		ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "mistral-v3", Families: "Mistral 7B v0.3, Nemo", Shape: JSONCalls,
		Open: []string{"[TOOL_CALLS]"}, List: true, NameKeys: nameKeys, ArgsKeys: argsKeys, IDKeys: idKeys,
		IDLast: true, IDs: NineID,
	},
	{
		Name: "mistral-v11", Families: "Mistral Small 3.1 and later, Magistral, Devstral, Ministral 3", Shape: Named,
		Open: []string{"[TOOL_CALLS]"}, IDMark: "[CALL_ID]", ArgsMark: "[ARGS]",
		NameKeys: nameKeys, ArgsKeys: argsKeys, IDKeys: idKeys, IDs: NineID,
		ThinkOpen: "[THINK]", ThinkClose: "[/THINK]",
	},
	{
		Name: "functiongemma", Families: "FunctionGemma", Shape: Braces,
		Open: []string{"<start_function_call>"}, Close: []string{"<end_function_call>"},
		Prefix: "call:", Escape: "<escape>",
	},
	{
		Name: "phi4-mini", Families: "Phi-4-mini", Shape: JSONCalls,
		Open: []string{"<|tool_call|>", "functools["}, Close: []string{"<|/tool_call|>"},
		Hints: []string{"<|tool|>"},
		List:  true, NameKeys: nameKeys, ArgsKeys: argsKeys,
	},
	{
		Name: "granite3", Families: "Granite 3", Shape: JSONCalls,
		Open: []string{"<|tool_call|>", "<tool_call>"}, Close: []string{"</tool_call>"},
		Hints: []string{"<|start_of_role|>available_tools<|end_of_role|>", "<|start_of_role|>tools<|end_of_role|>", "<|tool_call|>"},
		Drop:  []string{"<response>", "</response>"}, List: true, NameKeys: nameKeys, ArgsKeys: argsKeys,
		ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "harmony", Families: "gpt-oss", Shape: Harmony,
	},
	{
		Name: "deepseek-v3.1", Families: "DeepSeek V3.1", Shape: Named,
		Open: []string{"<｜tool▁call▁begin｜>"}, Close: []string{"<｜tool▁call▁end｜>"},
		Around: [2]string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}, Drop: []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
		NameEnd: []string{"<｜tool▁sep｜>"}, ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "deepseek-v3", Families: "DeepSeek V3 and R1", Shape: Named,
		Open: []string{"<｜tool▁call▁begin｜>"}, Close: []string{"<｜tool▁call▁end｜>"},
		Around: [2]string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}, Drop: []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
		Fence: true, Prefix: "function<｜tool▁sep｜>", NameEnd: []string{"<｜tool▁sep｜>", "\n"},
		ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "deepseek-v3.2", Families: "DeepSeek V3.2 and V4", Shape: Tagged,
		Open:     []string{"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
		Close:    []string{"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
		Tokens:   []string{"｜DSML｜"},
		CallOpen: `<｜DSML｜invoke name="`, CallNameEnd: `">`, CallClose: "</｜DSML｜invoke>",
		KeyOpen: `<｜DSML｜parameter name="`, KeyEnd: ">", ValueClose: "</｜DSML｜parameter>",
		Grouped: true, StringAttr: ` string="true"`, OtherAttr: ` string="false"`,
		ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "command-r7b", Families: "Command R7B, Command A", Shape: JSONCalls,
		Open: []string{"<|START_ACTION|>"}, Close: []string{"<|END_ACTION|>"},
		Drop: []string{"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
		List: true, NameKeys: []string{"tool_name", "name"}, ArgsKeys: argsKeys, IDKeys: []string{"tool_call_id"}, IDs: CountsID,
		ThinkOpen: "<|START_THINKING|>", ThinkClose: "<|END_THINKING|>",
	},
	{
		Name: "glm-4.5", Families: "GLM 4.5, 4.6, 4.7 and 5", Shape: Tagged,
		Open: []string{"<tool_call>"}, Close: []string{"</tool_call>"},
		CallNameEnd: "\n", CallClose: "</tool_call>",
		KeyOpen: "<arg_key>", KeyEnd: "</arg_key>", ValueOpen: "<arg_value>", ValueClose: "</arg_value>",
		ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "kimi-k2", Families: "Kimi K2", Shape: Named,
		Open: []string{"<|tool_call_begin|>"}, Close: []string{"<|tool_call_end|>"},
		Around: [2]string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}, Drop: []string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
		ArgsMark: "<|tool_call_argument_begin|>", IDs: KimiID,
		ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "minimax-m2", Families: "MiniMax M2", Shape: Tagged,
		Open: []string{"<minimax:tool_call>"}, Close: []string{"</minimax:tool_call>"},
		CallOpen: `<invoke name="`, CallNameEnd: `">`, CallClose: "</invoke>",
		KeyOpen: `<parameter name="`, KeyEnd: ">", ValueClose: "</parameter>",
		Grouped:   true,
		ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "nemotron-v2", Families: "Nemotron Nano v2", Shape: JSONCalls,
		Open: []string{"<TOOLCALL>"}, Close: []string{"</TOOLCALL>"},
		List: true, NameKeys: nameKeys, ArgsKeys: argsKeys, ThinkOpen: "<think>", ThinkClose: "</think>",
	},
	{
		Name: "apriel", Families: "Apriel", Shape: JSONCalls,
		Open: []string{"<tool_calls>"}, Close: []string{"</tool_calls>"},
		List: true, NameKeys: nameKeys, ArgsKeys: argsKeys, IDKeys: idKeys, Drop: []string{"[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"},
		ThinkOpen: "<thinking>", ThinkClose: "</thinking>",
	},
	{
		Name: "gemma4", Families: "Gemma 4", Shape: Braces,
		Open: []string{"<|tool_call>"}, Close: []string{"<tool_call|>"},
		Prefix: "call:", Escape: `<|"|>`,
		ThinkOpen: "<|channel>thought\n", ThinkClose: "<channel|>", Tokens: []string{"<|channel>"},
	},
	{
		Name: "apertus", Families: "Apertus", Shape: JSONCalls, NameIsKey: true, List: true,
		Open: []string{"<|tools_prefix|>"}, Close: []string{"<|tools_suffix|>"},
		ThinkOpen: "<|inner_prefix|>", ThinkClose: "<|inner_suffix|>",
	},
	{
		Name: "gigachat3", Families: "GigaChat 3", Shape: JSONCalls,
		Open: []string{"<|function_call|>"}, Close: []string{"<|message_sep|>"},
		NameKeys: nameKeys, ArgsKeys: argsKeys,
	},
	{
		Name: "solar-open", Families: "Solar Open", Shape: Named,
		Open: []string{"<|tool_call:begin|>"}, Close: []string{"<|tool_call:end|>"},
		Around: [2]string{"<|tool_calls|>", ""}, Drop: []string{"<|tool_calls|>", "<|calls|>"}, IDFirst: true,
		IDMark: "<|tool_call:name|>", ArgsMark: "<|tool_call:args|>",
	},
	{
		Name: "hy3", Families: "Hunyuan 3", Shape: Tagged,
		Open: []string{"<tool_call:opensource>"}, Close: []string{"</tool_call:opensource>"},
		Around: [2]string{"<tool_calls:opensource>", "</tool_calls:opensource>"}, Drop: []string{"<tool_calls:opensource>", "</tool_calls:opensource>"},
		CallNameEnd: "<tool_sep:opensource>", CallClose: "</tool_call:opensource>",
		KeyOpen: "<arg_key:opensource>", KeyEnd: "</arg_key:opensource>",
		ValueOpen: "<arg_value:opensource>", ValueClose: "</arg_value:opensource>",
		ThinkOpen: "<think:opensource>", ThinkClose: "</think:opensource>",
	},
	{
		Name: "kimi-k3", Families: "Kimi K3", Shape: Tagged,
		Open: []string{"<|open|>tools<|sep|>"}, Close: []string{"<|close|>tools<|sep|>"},
		Drop:     []string{"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"},
		CallOpen: `<|open|>call tool="`, CallNameEnd: "<|sep|>", CallClose: "<|close|>call<|sep|>",
		KeyOpen: `<|open|>argument key="`, KeyEnd: "<|sep|>", ValueClose: "<|close|>argument<|sep|>",
		Grouped: true, StringAttr: ` type="string"`, OtherAttr: ` type="number"`,
		ThinkOpen: "<|open|>think<|sep|>", ThinkClose: "<|close|>think<|sep|>",
		Tokens: []string{"<|open|>", "<|sep|>", "<|close|>"},
	},
}

// Lookup returns the format of that name, or nil.
func Lookup(name string) *Format {
	for _, f := range Formats {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Names are the names of all formats.
func Names() []string {
	names := make([]string, len(Formats))
	for i, f := range Formats {
		names[i] = f.Name
	}
	return names
}
