package page

import (
	"crypto/sha256"
	_ "embed" // the parts of pages
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/printable"
)

//go:embed parts.html.tmpl
var parts string

//go:embed page.css
var style string

//go:embed page.js
var script string

// frame is what every page has around its content.
type frame struct {
	Title string
	// Policy allows the page its own style and script, by their digests, and
	// nothing from outside.
	Policy string
	Style  template.CSS
	Script template.JS
}

// framed is the frame of a page, with the script or without.
func framed(title string, scripted bool) frame {
	f := frame{Title: title, Style: template.CSS(style)} //nolint:gosec // it is ours
	allowed := "style-src " + digest(style)
	if scripted {
		f.Script = template.JS(script) //nolint:gosec // it is ours
		allowed = "script-src " + digest(script) + "; " + allowed
	}
	f.Policy = "default-src 'none'; " + allowed + "; img-src data:; base-uri 'none'; form-action 'none'"
	return f
}

// digest is how a policy names a text of a page.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// execute writes a page: the markup, which may use the parts, with a view of its data.
func execute(w io.Writer, markup string, view any) error {
	t := template.New("page").Funcs(template.FuncMap{
		"bytes":       bytesize.Format,
		"coefficient": amount,
		"percent":     func(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) },
	})
	for _, text := range []string{parts, markup} {
		template.Must(t.Parse(text)) // the templates are ours
	}
	var b strings.Builder
	if err := t.Execute(&b, view); err != nil {
		return err
	}
	// Names from files may hold what a terminal would obey, where pages go, too.
	_, err := io.WriteString(w, printable.Text(b.String()))
	return err
}
