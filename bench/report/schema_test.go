package report

import (
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	validator "github.com/google/jsonschema-go/jsonschema"
	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/tools/golden"
)

// The committed schemas are made from the Go types and their comments.
func TestSchemaIsMadeFromTheTypes(t *testing.T) {
	for name, v := range map[string]any{
		"report": &Report{}, "accuracy": &Accuracy{}, "fit": &Fit{}, "smoke": &Smoke{}, "times": &Times{},
		"comparison": &Comparison{}, "diagnosis": &Diagnosis{}, "calibration": &Calibration{},
		"coefficients": &Coefficients{}, "response": &Response{},
		"published": &Published{}, "matrix": &Matrix{}, "bisection": &Bisection{},
	} {
		r := &jsonschema.Reflector{AllowAdditionalProperties: true, Mapper: texts}
		require.NoError(t, r.AddGoComments("github.com/vprof/vprof/bench/report", "./"))
		require.NoError(t, r.AddGoComments("github.com/vprof/vprof/bench/report", "../../models"))
		s := r.Reflect(v)
		s.ID = jsonschema.ID("https://github.com/vprof/vprof/schema/" + name + ".json")
		text, err := json.MarshalIndent(s, "", "  ")
		require.NoError(t, err)
		golden.Equal(t, "schema/"+name+".json", append(text, '\n'))
	}
}

// texts returns the schema of types that JSON has as text; nil for others.
func texts(t reflect.Type) *jsonschema.Schema {
	ours := t.PkgPath() == reflect.TypeFor[models.Case]().PkgPath()
	if ours && reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}

// validate checks a JSON document against a committed schema.
func validate(t *testing.T, schema string, doc []byte) error {
	t.Helper()
	text, err := os.ReadFile("schema/" + schema + ".json") // not the embedded one, which -update does not reach
	require.NoError(t, err)
	var parsed validator.Schema
	require.NoError(t, json.Unmarshal(text, &parsed))
	s, err := parsed.Resolve(nil)
	require.NoError(t, err)
	var v any
	require.NoError(t, json.Unmarshal(doc, &v))
	return s.Validate(v)
}

func TestSchemaRefusesOtherDocuments(t *testing.T) {
	require.Error(t, validate(t, "report", []byte(`{}`)))
	require.Error(t, validate(t, "accuracy", []byte(`{"rows":1}`)))
	_, ok := JSONSchema("receipt")
	require.False(t, ok)
	require.Subset(t, Schemas(), []string{"accuracy", "fit", "report"})
	for _, name := range Schemas() {
		_, ok := JSONSchema(name)
		require.True(t, ok)
	}
}
