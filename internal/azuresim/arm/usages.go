package arm

import "net/http"

// listUsages answers with the counters of a location: what is used and what is allowed.
func (s *Server) listUsages(c *call) (reply, error) {
	usages, err := s.Cloud.Usages(c.params["subscription"], c.params["location"])
	if err != nil {
		return reply{}, err
	}
	list := make([]any, 0, len(usages))
	for _, u := range usages {
		list = append(list, map[string]any{
			"unit": "Count", "currentValue": u.Current, "limit": u.Limit, "name": map[string]string{
				"value":          u.Name,
				"localizedValue": u.Localized,
			},
		})
	}
	return reply{status: http.StatusOK, body: map[string]any{"value": list}}, nil
}
