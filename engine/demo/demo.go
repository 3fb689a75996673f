// Package demo holds the model that Forebay serves when none is named: 3.7
// million parameters, trained for this project on text made for it. It shows
// that everything works, tells short stories, and is no use beyond that;
// examples/demo-model says how to remake it.
package demo

import _ "embed"

// Name is the model's name, also in its file.
const Name = "forebay-demo"

//go:embed forebay-demo-q8_0.gguf
var file []byte

// GGUF is the model file. Read only.
func GGUF() []byte { return file }
