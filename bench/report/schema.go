package report

import (
	"embed"
	"strings"
)

//go:embed schema
var schemas embed.FS

// Schemas are the names of the documents that have a JSON Schema, sorted.
func Schemas() []string {
	files, err := schemas.ReadDir("schema")
	if err != nil {
		panic(err) // embedded
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".json"))
	}
	return names
}

// JSONSchema returns the JSON Schema of one of [Schemas].
func JSONSchema(name string) (text []byte, ok bool) {
	text, err := schemas.ReadFile("schema/" + name + ".json")
	return text, err == nil
}
