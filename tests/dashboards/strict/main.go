// Command strict reads dashboards with the Go SDK's strict decoding, which refuses unknown fields, wrong types and
// missing required parts of a dashboard, its panels and its queries. It prints what is wrong, and exits with 1.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	status := 0
	for _, path := range os.Args[1:] {
		for _, err := range check(path) {
			// Valid input gives an error value without a message.
			if err != nil && err.Error() != "" {
				fmt.Printf("%s: %v\n", path, err)
				status = 1
			}
		}
	}
	os.Exit(status)
}

func check(path string) []error {
	text, err := os.ReadFile(path)
	if err != nil {
		return []error{err}
	}
	var board dashboard.Dashboard
	found := []error{board.UnmarshalJSONStrict(text)}
	// The SDK decodes field configurations leniently where they stand in a panel.
	var parts struct {
		Panels []struct {
			Title       string
			FieldConfig json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return append(found, err)
	}
	for _, panel := range parts.Panels {
		var fields dashboard.FieldConfigSource
		if panel.FieldConfig == nil {
			continue
		}
		if err := fields.UnmarshalJSONStrict(panel.FieldConfig); err != nil && err.Error() != "" {
			found = append(found, fmt.Errorf("%s: fieldConfig: %w", panel.Title, err))
		}
	}
	return append(found, board.Validate())
}
