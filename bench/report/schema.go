package report

import _ "embed" // the schemas

//go:embed schema/report.json
var reportSchema []byte

//go:embed schema/accuracy.json
var accuracySchema []byte

// JSONSchema returns the JSON Schema of "report" ([Report]) or "accuracy"
// ([Accuracy]).
func JSONSchema(name string) (text []byte, ok bool) {
	switch name {
	case "report":
		return reportSchema, true
	case "accuracy":
		return accuracySchema, true
	}
	return nil, false
}
