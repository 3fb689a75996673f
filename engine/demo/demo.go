// Package demo holds the model that Forebay serves by default. It has 3.7 million
// parameters and was trained for this project on generated text. It proves that
// everything works and tells short stories; it has no other use.
// examples/demo-model says how to train it again.
package demo

import _ "embed"

// Name is the model's name, also in its file.
const Name = "forebay-demo"

// ToolFormat is the format in which the model is told to call tools. It does not
// understand them, but a call that is required has the right form.
const ToolFormat = "hermes"

//go:embed forebay-demo-q8_0.gguf
var file []byte

// GGUF returns the model file, which must not be changed.
func GGUF() []byte { return file }
