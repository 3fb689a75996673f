package engine

import (
	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/engine/grammar/schema"
)

// GrammarConfig bounds the grammars that answers are held to: all of them together,
// the text of one, the work of compiling it, and the work of following it.
type GrammarConfig struct {
	CacheBytesMax int `yaml:"cache_bytes_max" default:"64MiB" range:"1MiB..64GiB" help:"Memory for compiled grammars and the masks that they remember, in bytes; what was not used for longest goes first."`
	CompilesMax   int `yaml:"compiles_max" default:"2" range:"1..1024" help:"Grammars that are compiled at the same time; others wait for their turn."`

	SourceBytesMax  int `yaml:"source_bytes_max" default:"1MiB" range:"1KiB..64MiB" help:"Text of a schema or grammar, in bytes."`
	NestingMax      int `yaml:"nesting_max" default:"64" range:"1..1000" help:"Levels of nesting in the text of a schema or grammar."`
	PropertiesMax   int `yaml:"properties_max" default:"5000" range:"1..1000000" help:"Properties that the objects of a schema list, all together."`
	EnumValuesMax   int `yaml:"enum_values_max" default:"10000" range:"1..1000000" help:"Values in the enums of a schema, all together."`
	EnumBytesMax    int `yaml:"enum_bytes_max" default:"1MiB" range:"1KiB..64MiB" help:"Bytes in the enums of a schema, all together."`
	AlternativesMax int `yaml:"alternatives_max" default:"512" range:"1..65536" help:"Alternatives for one JSON type at one place of a schema, after its keywords are combined."`
	CombineStepsMax int `yaml:"combine_steps_max" default:"1000000" range:"1000..1000000000" help:"Steps of work for combining a schema's keywords."`
	CompileStepsMax int `yaml:"compile_steps_max" default:"4194304" range:"1000..1000000000" help:"Steps of work for compiling a grammar; a step takes some tens of nanoseconds."`
	NodesMax        int `yaml:"nodes_max" default:"524288" range:"1000..16777216" help:"Nodes of the regular expressions of a grammar."`
	PlacesMax       int `yaml:"places_max" default:"262144" range:"1000..16777216" help:"Places within the rules of a grammar."`
	RepeatMax       int `yaml:"repeat_max" default:"1000000" range:"1..1000000000" help:"Largest bound of a repetition, such as maxItems or {3,20}."`

	ByteStepsMax   int `yaml:"byte_steps_max" default:"1048576" range:"1000..1000000000" help:"Steps of work for one byte of an answer; over it the request fails."`
	MaskStepsMax   int `yaml:"mask_steps_max" default:"2097152" range:"1000..1000000000" help:"Steps of work for finding which tokens may come next; over it the request fails."`
	ItemsMax       int `yaml:"items_max" default:"32768" range:"16..1048576" help:"Rules that are open at one place of an answer."`
	ReadingsMax    int `yaml:"readings_max" default:"64" range:"1..4096" help:"Ways to cut an answer into terminals that are open at the same time."`
	MemoryBytesMax int `yaml:"memory_bytes_max" default:"16MiB" range:"64KiB..4GiB" help:"Memory that one grammar makes while answers follow it, in bytes; above it what is not in use is dropped."`
	MasksMax       int `yaml:"masks_max" default:"256" range:"1..65536" help:"Masks that one grammar remembers, each a bit for every token of the vocabulary."`
}

func (c *GrammarConfig) grammarLimits() grammar.Limits {
	return grammar.Limits{
		Nodes: c.NodesMax, Positions: c.PlacesMax, Work: c.CompileStepsMax, StepWork: c.ByteStepsMax, MaskWork: c.MaskStepsMax, Masks: c.MasksMax,
		Items: c.ItemsMax, Threads: c.ReadingsMax, Memory: c.MemoryBytesMax, Count: c.RepeatMax, Nesting: c.NestingMax, SourceSize: c.SourceBytesMax,
	}
}

func (c *GrammarConfig) schemaLimits() schema.Limits {
	return schema.Limits{
		Bytes: c.SourceBytesMax, Nesting: c.NestingMax, Properties: c.PropertiesMax, EnumValues: c.EnumValuesMax, EnumBytes: c.EnumBytesMax,
		Alternatives: c.AlternativesMax, Work: c.CombineStepsMax,
	}
}
