// Variables of chat_template_kwargs, and where generation blocks stand.
#include <gtest/gtest.h>
#include <unistd.h>

#include "model/chat_template.h"

namespace tandem::model {
namespace {

Result<Rendered> rendered_with(std::string_view source, const Json& variables) {
  const auto chat_template = TRY(ChatTemplate::parse(source));
  RenderOptions options;
  options.variables = variables;
  const Json messages = *parse_json(R"([{"role":"user","content":"a"},{"role":"assistant","content":"bb"}])");
  return chat_template.render(messages, nullptr, options);
}

TEST(ChatTemplateVariables, documents_are_given_to_the_template) {
  const Json documents = Json::array({Json{{"title", "T"}, {"text", "t"}}});
  EXPECT_EQ(rendered_with("{{ documents[0].title }}", {{"documents", documents}})->text, "T");
  EXPECT_EQ(rendered_with("{{ documents }}", {{"documents", nullptr}})->text, "None");
  EXPECT_EQ(rendered_with("{{ documents }}", Json::object())->text, "None");
  for (const Json& wrong : {Json("x"), Json::array({"x"}), Json{{"title", "T"}}})
    EXPECT_NE(rendered_with("x", {{"documents", wrong}}).error().message().find("documents"), std::string::npos);
}

TEST(ChatTemplateVariables, what_something_else_decides_is_refused_by_name) {
  for (const char* name : {"messages", "tools", "chat_template"})
    EXPECT_NE(rendered_with("x", {{name, "y"}}).error().message().find(name), std::string::npos);
  // Said twice is fine; the second must not be dropped where it is another.
  const bool given = RenderOptions().add_generation_prompt;
  EXPECT_TRUE(rendered_with("x", {{"add_generation_prompt", given}}));
  EXPECT_FALSE(rendered_with("x", {{"add_generation_prompt", !given}}));
  EXPECT_FALSE(rendered_with("x", {{"add_generation_prompt", nullptr}}));
}

// transformers looks for the place of a block in what jinja2 has written by then, and of a recursive loop that is
// nothing before it is over.
TEST(ChatTemplateVariables, generation_blocks_of_a_recursive_loop_are_marked_where_transformers_marks_them) {
  const auto rendered = rendered_with(
      "<>{% for m in messages recursive %}{{ m.role }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% endif %}{% endfor %}",
      Json::object());
  ASSERT_TRUE(rendered) << rendered.error().message();
  EXPECT_EQ(rendered->text, "<>userassistantbb");
  EXPECT_TRUE(rendered->assistant_spans.empty());
  ASSERT_EQ(rendered->displaced_spans.size(), 1u);
  EXPECT_EQ(rendered->displaced_spans[0], (std::pair<size_t, size_t>(2, 4)));
}

TEST(ChatTemplateVariables, a_template_for_tools_alone_renders_requests_with_tools) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("template-for-tools-alone-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder / "additional_chat_templates");
  ASSERT_TRUE(write_file(folder / "additional_chat_templates/tool_use.jinja", "T{{ tools|length }}").ok());
  const auto chat_template = ChatTemplate::load(folder);
  ASSERT_TRUE(chat_template) << chat_template.error().to_string();
  const Json messages = *parse_json(R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(chat_template->render(messages, Json::array({1, 2}), {})->text, "T2");
  EXPECT_NE(chat_template->render(messages, nullptr, {}).error().message().find("tool_use"), std::string::npos);
  EXPECT_EQ(chat_template->source(false), "T{{ tools|length }}");
}

}  // namespace
}  // namespace tandem::model
